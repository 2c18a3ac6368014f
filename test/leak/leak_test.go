package leak

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) { Main(m) }

// What a test leaves is told by its name, and no longer when it is gone.
func TestLeft(t *testing.T) {
	before := look()
	if left := before.left(); left != "" {
		t.Fatalf("nothing was done, and there is\n%s", left)
	}
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	began, end := make(chan struct{}), make(chan struct{})
	go forgotten(began, end)
	<-began
	left := before.wait(0)
	if !strings.Contains(left, "/dev/null") || !strings.Contains(left, "leak.forgotten(") {
		t.Errorf("a goroutine and a file too many, and it says\n%s", left)
	}
	f.Close()
	close(end)
	if left := before.wait(10 * time.Minute); left != "" {
		t.Errorf("all is gone, and it says\n%s", left)
	}
}

func forgotten(began, end chan struct{}) {
	close(began)
	<-end
}

// A descriptor that was closed, and its number taken by another, is another.
func TestReplaced(t *testing.T) {
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	before := look()
	f.Close()
	if f, err = os.Open("/dev/zero"); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if left := before.wait(0); !strings.Contains(left, "/dev/zero") {
		t.Errorf("it does not see /dev/zero: %q", left)
	}
}
