package web

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// A reader is who reads, and therefore what of.
type reader int

const (
	public reader = iota // states, names, sentences
	owner                // and what workers printed, and where they stood
)

// admit says who reads. If it reports false, the answer was given.
//
// Nothing is to be had here by a page from elsewhere whose name was made to lead to this address (DNS rebinding): its browser calls us by that
// name. So we answer to numbers and to names that nobody can own out there; under any other name one has to show the token.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) (reader, bool) {
	if local, _ := r.Context().Value(localKey{}).(bool); local {
		return owner, true
	}
	query := r.URL.Query()
	if given := query.Get("token"); given != "" {
		if !s.knows(given) {
			say(w, http.StatusUnauthorized, "this is not the token")
			return 0, false
		}
		// Not the token itself: browsers show cookies to whatever listens at another port of this host.
		http.SetCookie(w, &http.Cookie{Name: s.cookieName(), Value: cookie(given), Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode})
		query.Del("token")
		at := url.URL{Path: "." + r.URL.Path, RawQuery: query.Encode()} // relative, for there may be a proxy before us; and without the token, which is no part of an address
		w.Header().Set("Location", at.String())
		w.WriteHeader(http.StatusSeeOther)
		return 0, false
	}
	if given := r.Header.Get("Authorization"); given != "" {
		bearer, is := strings.CutPrefix(given, "Bearer ")
		if !is || !s.knows(strings.TrimSpace(bearer)) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			say(w, http.StatusUnauthorized, "this is not the token")
			return 0, false
		}
		return owner, true
	}
	if c, err := r.Cookie(s.cookieName()); err == nil && s.bakes(c.Value) {
		return owner, true
	}
	if !s.called(r.Host) {
		say(w, http.StatusMisdirectedRequest, "this agent is not known by that name: call it by its address, or with the token")
		return 0, false
	}
	return public, true
}

// knows reports whether a token is one of ours, in a time that says nothing of how much of it is right.
func (s *Server) knows(given string) bool {
	found := false
	for _, t := range s.c.Tokens {
		found = hmac.Equal(sum(t), sum(given)) || found
	}
	return found
}

func (s *Server) bakes(given string) bool {
	found := false
	for _, t := range s.c.Tokens {
		found = hmac.Equal([]byte(cookie(t)), []byte(given)) || found
	}
	return found
}

func sum(text string) []byte {
	b := sha256.Sum256([]byte(text))
	return b[:]
}

// cookie stands for a token, and does not give it away.
func cookie(token string) string {
	m := hmac.New(sha256.New, []byte(token))
	m.Write([]byte("muster: may read the status page"))
	return hex.EncodeToString(m.Sum(nil))
}

// cookieName is another one for each job, for those of one host share their cookies.
func (s *Server) cookieName() string {
	if len(s.c.Tokens) == 0 {
		return "muster"
	}
	return "muster-" + hex.EncodeToString(sum(cookie(s.c.Tokens[0]))[:4])
}

// private are domains in which nobody can have a name who is not of this network (RFC 6761, RFC 6762, ICANN's .internal; Kubernetes' own).
var private = []string{".local", ".internal", ".localhost", ".svc", ".lan"}

// called reports whether a host, as a browser calls it, is us for certain.
func (s *Server) called(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if _, err := netip.ParseAddr(host); err == nil || host == "" || !strings.Contains(host, ".") {
		return true
	}
	for _, domain := range private {
		if strings.HasSuffix(host, domain) {
			return true
		}
	}
	own := strings.ToLower(s.c.Host)
	return host == own
}

// newNonce marks the page's own script and style, of which a browser runs no others.
func newNonce() string {
	b := make([]byte, 16)
	rand.Read(b) // never fails
	return base64.RawStdEncoding.EncodeToString(b)
}
