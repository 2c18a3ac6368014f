package horovod

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

// Whatever is asked, the store keeps what this world may, and no more.
func FuzzServe(f *testing.F) {
	f.Add(true, "/global/0", []byte("an address"), "/global/rank_1")
	f.Add(false, "/local_node-0/1", []byte{}, "/cross_1/0")
	f.Add(true, "/worker_addresses/x", []byte("y"), "global/0")
	f.Add(true, "/global_process_set_hash_1a/01", make([]byte, 9000), "/global/4294967296")
	f.Fuzz(func(t *testing.T, put bool, path string, body []byte, other string) {
		s := &Server{World: World{2, 1}, Log: func(string) {}}
		method := http.MethodDelete
		if put {
			method = http.MethodPut
		}
		for _, at := range []string{path, other, path} {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, &http.Request{Method: method, URL: &url.URL{Path: at}, Body: io.NopCloser(bytes.NewReader(body)), RemoteAddr: "192.0.2.1:1"})
			if w.Code != http.StatusOK && w.Body.Len() == 0 {
				t.Errorf("%s %q: %d, without a reason", method, at, w.Code)
			}
		}
		held := 0
		for name, in := range s.scopes {
			for k, v := range in.values {
				held += overhead + len(name) + len(k) + len(v)
			}
		}
		if n := s.World.size(); held != s.held || held > 4*n*(maxAddress*n+maxRest) {
			t.Errorf("it holds %d bytes, and counts %d", held, s.held)
		}
	})
}
