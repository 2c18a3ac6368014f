package launcher

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/muster-run/muster/discovery"
	"github.com/muster-run/muster/job"
)

// TokenVariable holds the job's token where no file does. It is not for the workers.
const TokenVariable = "MUSTER_TOKEN"

// A token is no password that a person keeps in mind: whoever can read the store can guess at it for years.
const (
	leastToken = 16 // bytes
	mostToken  = 4 << 10
)

// planToken reads the token that only the nodes of this job have, if there is one. The nodes compare a digest of it when they meet,
// and prove to each other that they have it when they connect.
func planToken(c Config, _ discovery.Finding, p *Plan) error {
	token, from, err := c.token()
	if err == nil && from != "" && (len(token) < leastToken || len(token) > mostToken) {
		err = fmt.Errorf("it has %d bytes, and may have %d to %d", len(token), leastToken, mostToken)
	}
	if err != nil {
		return fail(job.ExitUsage, "for instance: openssl rand -hex 32", "the job's token, from %s: %w", from, err)
	}
	if token != "" {
		p.Token, p.Spec.Token = token, digest(token, p.Spec.ID)
	}
	return nil
}

// token returns the token and who gave it; "": nobody did.
func (c Config) token() (token, from string, err error) {
	value := c.Host.Getenv(TokenVariable) // the workers' environment does not have it
	switch {
	case c.TokenFile != "" && value != "":
		return "", c.by("token-file") + " and " + TokenVariable, errors.New("both are given; drop one of them")
	case c.TokenFile != "":
		token, err = readToken(c.TokenFile)
		return token, c.said("token-file", c.TokenFile), err
	case value != "":
		return strings.TrimSpace(value), TokenVariable, nil
	}
	return "", "", nil
}

// ReadToken is the job's token: the value of its variable, or what a file holds; "": neither is given. From is which.
func ReadToken(value, file string) (token, from string, err error) {
	from = TokenVariable
	switch {
	case value != "" && file != "":
		return "", "", fmt.Errorf("%s and a file for it are both given; drop one of them", TokenVariable)
	case file != "":
		from = file
		if value, err = readToken(file); err != nil {
			return "", from, fmt.Errorf("the job's token: %w", err)
		}
	case value == "":
		return "", "", nil
	}
	if value = strings.TrimSpace(value); len(value) < leastToken || len(value) > mostToken {
		return "", from, fmt.Errorf("the job's token, from %s, has %d bytes, and may have %d to %d", from, len(value), leastToken, mostToken)
	}
	return value, from, nil
}

func readToken(path string) (string, error) {
	b, err := readSmall(path, mostToken)
	return strings.TrimSpace(string(b)), err
}

// readSmall reads a file of at most so many bytes. Of a larger one it returns more than that, and not all.
func readSmall(path string, most int) ([]byte, error) {
	if i, err := os.Stat(path); err == nil && !i.Mode().IsRegular() {
		return nil, errors.New("it is no regular file") // to open a FIFO may take for ever
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 2*int64(most)))
}

// digest is by what a token is recognised, in one job.
func digest(token, id string) string {
	mac := hmac.New(sha256.New, []byte(token))
	fmt.Fprintf(mac, "muster job token %q", id)
	return hex.EncodeToString(mac.Sum(nil)[:16])
}
