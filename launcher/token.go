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
	if err == nil && from != "" {
		err = tokenFits(token)
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

// tokenFits refuses a token that is too short to be a secret, or none at all.
func tokenFits(token string) error {
	if len(token) < leastToken || len(token) > mostToken {
		return fmt.Errorf("it has %d bytes, and may have %d to %d", len(token), leastToken, mostToken)
	}
	return nil
}

// ReadToken is the job's token, by the value of its variable or from a file, and which of them; "": neither is given.
func ReadToken(value, file string) (token, from string, err error) {
	switch {
	case value != "" && file != "":
		return "", "", fmt.Errorf("%s and %s both give the job's token; drop one of them", TokenVariable, file)
	case value == "" && file == "":
		return "", "", nil
	case value != "":
		token, from = strings.TrimSpace(value), TokenVariable
	default:
		from = file
		token, err = readToken(file)
	}
	if err == nil {
		err = tokenFits(token)
	}
	if err != nil {
		return "", from, fmt.Errorf("the job's token, from %s: %w", from, err)
	}
	return token, from, nil
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
