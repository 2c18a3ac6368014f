package control

import (
	"context"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
)

// Whatever comes instead of a request is answered or hung up on, and the next client is served.
func FuzzServe(f *testing.F) {
	f.Add([]byte(`{"do":"status"}` + "\n"))
	f.Add([]byte(`{"do":"x","wait":true}` + "\nmore"))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	dir := f.TempDir()
	s, err := Listen(dir, echo, slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(s.Close)
	path := filepath.Join(dir, Socket)
	f.Fuzz(func(t *testing.T, sent []byte) {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = c.Write(sent) // it may hang up before all is sent
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, c)
		var got string
		if err := (Client{Path: path}).Ask(context.Background(), Request{Do: "x"}, &got); err != nil || got != "x" {
			t.Errorf("%q %v", got, err)
		}
	})
}
