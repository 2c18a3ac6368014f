package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/muster-run/muster/job"
)

// A Mask hides secrets in what is passed on to other people: the values of variables whose names speak of secrets, wherever
// they stand, and what looks like a secret by itself. It rather hides too much.
type Mask struct{ values *strings.Replacer }

// masked stands where a secret stood.
const masked = "[masked]"

// shortSecret is the length below which a value is hidden in its variable only: it would be found in every other word.
const shortSecret = 6

// NewMask learns the secrets of an environment, in the form of os.Environ.
func NewMask(environ []string) Mask {
	var found []string
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if SecretName(name) {
			found = append(append(found, value), strings.Split(value, "\n")...)
		}
		for _, m := range userinfo().FindAllStringSubmatch(value, -1) {
			found = append(found, m[2])
		}
	}
	found = slices.DeleteFunc(found, func(s string) bool { return len(s) < shortSecret })
	slices.SortFunc(found, func(a, b string) int { return cmp.Compare(len(b), len(a)) }) // one may contain another
	var pairs []string
	for _, s := range found {
		pairs = append(pairs, s, masked)
	}
	return Mask{strings.NewReplacer(pairs...)}
}

// secretEnds are how the words end by which a name speaks of a secret, and secretWords are such words as a whole.
var (
	secretEnds  = []string{"TOKEN", "SECRET", "SECRETS", "PASSWORD", "PASSWORDS", "PASSWD", "PASSPHRASE", "KEY", "CREDENTIAL", "CREDENTIALS", "WEBHOOK"}
	secretWords = []string{"AUTH", "AUTHORIZATION", "COOKIE", "COOKIES", "CREDS", "DSN", "JWT", "KEYS", "PASS", "PAT", "PWD", "SAS", "TOKENS"}
)

// SecretName reports whether a variable, flag or field of this name may hold a secret.
func SecretName(name string) bool {
	if name == "PWD" || name == "OLDPWD" { // a shell's directories
		return false
	}
	words := strings.FieldsFunc(strings.ToUpper(name), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	if n := len(words); n > 1 && strings.HasPrefix(words[n-2], "ETCD") && words[n-1] == "USER" { // NAME:PASSWORD, for etcdctl and for us
		return true
	}
	return slices.ContainsFunc(words, func(word string) bool {
		return slices.Contains(secretWords, word) ||
			slices.ContainsFunc(secretEnds, func(end string) bool { return strings.HasSuffix(word, end) })
	})
}

// userinfo is who logs in with a URL, and the password (RFC 3986, 3.2.1), which people forget to escape.
var userinfo = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(://[^\s/:@"']*):([^\s@"']+)@`)
})

// A pattern is a secret that is known by what stands before it, or by its form; $1 stays. A guess hides what may as well be
// none: in training, tokens are words.
type pattern struct {
	form  *regexp.Regexp
	with  string
	guess bool
}

// patterns are compiled when they are needed, for a failure or a bug report, and not in each start of the program.
var patterns = sync.OnceValue(func() []pattern {
	return []pattern{
		{form: userinfo(), with: "$1:" + masked + "@"},
		{form: regexp.MustCompile(`(-----BEGIN [A-Z ]*PRIVATE KEY-----)[^-]*`), with: "$1" + masked},
		{form: regexp.MustCompile(`(?i)\b(bearer\s+)[\w.~+/=-]{6,}`), with: "$1" + masked},
		{form: regexp.MustCompile(`(?i)\b(basic\s+)[\w.~+/=-]{6,}`), with: "$1" + masked, guess: true},
		{form: regexp.MustCompile(`(?i)((?:token|secret|password|passwd|passphrase|credentials?|(?:api|access|private|auth|account)[_-]?key)["']?\s*[=:]\s*["']?)[^\s"',;&]+`), with: "$1" + masked, guess: true},
		// Hugging Face, GitHub, GitLab, OpenAI and Anthropic, Slack, npm, AWS, and any JSON web token (RFC 7519).
		{form: regexp.MustCompile(`\b(?:hf_|gh[opsur]_|github_pat_|glpat-|sk-|xox[abeoprs]-|npm_)[\w-]{8,}`), with: masked},
		{form: regexp.MustCompile(`\b(?:AKIA|ASIA)[0-9A-Z]{12,}`), with: masked},
		{form: regexp.MustCompile(`\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*`), with: masked},
	}
})

// Text returns text without the secrets.
func (m Mask) Text(text string) string {
	return m.hide(text, true)
}

func (m Mask) hide(text string, guess bool) string {
	text = m.values.Replace(text)
	for _, p := range patterns() {
		if guess || !p.guess {
			text = p.form.ReplaceAllString(text, p.with)
		}
	}
	return text
}

// maxSaid bounds what of a line is looked at for secrets.
const maxSaid = 64 << 10

// Line is Line without the secrets in what a worker said. They are hidden first, for of half a secret nobody could tell that it is one, and again
// when the control characters are gone that parted one.
func (m Mask) Line(text string, n int) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	return Line(m.hide(Plain(m.hide(text[:min(len(text), maxSaid)], false)), false), n)
}

// Failure hides the secrets in what a worker said of its end, which is told to far more people than read its log: a
// termination log stands in the cluster's own records. It does not guess, for that is also what explains the failure.
func (m Mask) Failure(f *job.Failure) {
	f.Exception = m.hide(f.Exception, false)
	f.Tail = slices.Clone(f.Tail)
	for i := range f.Tail {
		f.Tail[i] = m.hide(f.Tail[i], false)
	}
	f.Evidence = slices.Clone(f.Evidence)
	for i := range f.Evidence {
		f.Evidence[i].Text = m.hide(f.Evidence[i].Text, false)
	}
}

// Environ returns an environment without the secrets, a line for each variable.
func (m Mask) Environ(environ []string) string {
	var b strings.Builder
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if SecretName(name) && value != "" {
			value = masked
		}
		b.WriteString(name + "=" + strings.ReplaceAll(m.Text(value), "\n", `\n`) + "\n")
	}
	return b.String()
}

// Args returns a command line without the secrets, also those that a word of their own follows: --api-key X.
func (m Mask) Args(argv []string) []string {
	var out []string
	for i, arg := range argv {
		if name, _, inline := strings.Cut(arg, "="); inline && strings.HasPrefix(arg, "-") && SecretName(name) {
			arg = name + "=" + masked
		} else if before := argv[max(i-1, 0)]; i > 0 && strings.HasPrefix(before, "-") && !strings.Contains(before, "=") && SecretName(before) {
			arg = masked
		}
		out = append(out, m.Text(arg))
	}
	return out
}

// JSON returns JSON values without the secrets in their texts, one a line. What is no JSON ends it.
func (m Mask) JSON(data []byte) []byte {
	var out bytes.Buffer
	in, to := json.NewDecoder(bytes.NewReader(data)), json.NewEncoder(&out)
	in.UseNumber() // or times in nanoseconds would lose their last digits
	to.SetEscapeHTML(false)
	for {
		var v any
		if err := in.Decode(&v); err != nil {
			if err != io.EOF {
				out.WriteString("the rest is no JSON\n")
			}
			return out.Bytes()
		}
		_ = to.Encode(m.value(v)) // what was decoded, into memory: cannot fail
	}
}

func (m Mask) value(v any) any {
	switch v := v.(type) {
	case string:
		return m.Text(v)
	case []any:
		for i := range v {
			v[i] = m.value(v[i])
		}
	case map[string]any:
		for name, field := range v {
			if text, ok := field.(string); ok && text != "" && SecretName(name) {
				field = masked
			}
			v[name] = m.value(field)
		}
	}
	return v
}
