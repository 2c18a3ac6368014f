package report

import (
	"fmt"
	"strings"
	"testing"

	"github.com/muster-run/muster/job"
)

func TestSecretName(t *testing.T) {
	for _, name := range []string{"HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "apikey", "GITHUBTOKEN", "MYSQL_PWD", "DB_PASS", "GOOGLE_APPLICATION_CREDENTIALS",
		"--api-key", "PGPASSWORD", "SSH_AUTH_SOCK", "SENTRY_DSN", "http.cookie", "SLACK_WEBHOOK_URL", "ETCDCTL_USER", "--etcd-user"} {
		if !SecretName(name) {
			t.Errorf("%s is said to hold no secret", name)
		}
	}
	for _, name := range []string{"PWD", "OLDPWD", "PATH", "RANK", "MASTER_ADDR", "TOKENIZERS_PARALLELISM", "NCCL_PATTERN", "KEYBOARD", "PASSIVE", "AUTHOR", "USER", "PGUSER", "exit_code", ""} {
		if SecretName(name) {
			t.Errorf("%s is said to hold a secret", name)
		}
	}
}

func TestMaskText(t *testing.T) {
	m := NewMask([]string{"A_TOKEN=tok-12345", "LONG_TOKEN=tok-12345-and-more", "SHORT_KEY=on", "PEM_KEY=first line\nsecond line\n", "DB=postgres://u:pa%24word@h/d",
		"PLAIN=visible"})
	for text, want := range map[string]string{
		"see tok-12345 and tok-12345-and-more":           "see [masked] and [masked]",
		"on PLAIN visible":                               "on PLAIN visible",
		"  second line.":                                 "  [masked].",
		"log in with pa%24word":                          "log in with [masked]",
		"https://me:xyz@host/x?a=b":                      "https://me:[masked]@host/x?a=b",
		"https://host:8080/x me@y":                       "https://host:8080/x me@y",
		"s3://u:a/b+c@host":                              "s3://u:[masked]@host",
		"GET /?access_token=abc&x=1":                     "GET /?access_token=[masked]&x=1",
		`{"password": "abc", "n": 1}`:                    `{"password": "[masked]", "n": 1}`,
		"api-key: abc":                                   "api-key: [masked]",
		"Authorization: Bearer abc.def-ghi":              "Authorization: Bearer [masked]",
		"hf_abcdefghij ghp_0123456789 sk-ant-0123456789": "[masked] [masked] [masked]",
		"AKIAABCDEFGHIJKLMNOP":                           "[masked]",
		"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc":       "[masked]",
		"-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY---": "-----BEGIN RSA PRIVATE KEY-----[masked]-----END RSA PRIVATE KEY---",
		"KeyError: 'lr' in tokenizer: fast, 4096 tokens":                     "KeyError: 'lr' in tokenizer: fast, 4096 tokens",
		"goroutine 1 [select]:\nmain.main()\n\t/x/main.go:10 +0x1":           "goroutine 1 [select]:\nmain.main()\n\t/x/main.go:10 +0x1",
	} {
		if got := m.Text(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// What a worker said of its end is hidden where it is a secret, and stays where it only sounds like one.
func TestMaskFailure(t *testing.T) {
	tail := []string{"login with tok-12345", "token: <unk>, n_token=4096, basic operations", "Bearer abc.def-ghi"}
	f := job.Failure{Exception: "HTTPError: https://me:xyz@host", Tail: tail, Evidence: []job.Evidence{{Kind: "x", Text: "it has hf_abcdefghij"}}}
	NewMask([]string{"A_TOKEN=tok-12345"}).Failure(&f)
	got := strings.Join(append([]string{f.Exception, f.Evidence[0].Text}, f.Tail...), "\n")
	want := "HTTPError: https://me:[masked]@host\nit has [masked]\nlogin with [masked]\n" + tail[1] + "\nBearer [masked]"
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if tail[0] != "login with tok-12345" {
		t.Error("the worker's own lines were changed, which others may read")
	}
}

func TestMaskForms(t *testing.T) {
	m := NewMask([]string{"A_TOKEN=tok-12345"})
	if got, want := m.Environ([]string{"A_TOKEN=tok-12345", "B_KEY=x", "C_KEY=", "D=a\nb tok-12345"}), "A_TOKEN=[masked]\nB_KEY=[masked]\nC_KEY=\nD=a\\nb [masked]\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	args := strings.Fields("train.py --lr 1e-4 --api-key abc --hub-token=def --name=tok-12345 x=y")
	if got, want := fmt.Sprint(m.Args(args)), "[train.py --lr 1e-4 --api-key [masked] --hub-token=[masked] --name=[masked] x=y]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	in := `{"at":1234567890123456789,"tail":["a <b> tok-12345",{"api_key":"x","n":null}],"port":3}` + "\n" + `{"password":7}` + "\n{"
	want := `{"at":1234567890123456789,"port":3,"tail":["a <b> [masked]",{"api_key":"[masked]","n":null}]}` + "\n" + `{"password":7}` + "\nthe rest is no JSON\n"
	if got := string(m.JSON([]byte(in))); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
