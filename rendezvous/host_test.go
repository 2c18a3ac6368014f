package rendezvous

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/muster-run/muster/rendezvous/store"
)

// A store that is lost when the world was published comes back with it: the node that hosts it, and had not read yet what it
// published or was told, is in the same world as those who had.
func TestHostIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kept []byte
		host := func() *shared { return &shared{Memory: Host("", "job7", kept, func(b []byte) { kept = b })} }
		s := host()
		first := join(s, agent("a", 2), Options{})
		synctest.Wait()
		if kept != nil {
			t.Fatalf("before the world, %q is kept", kept)
		}
		second := join(s, agent("b", 2), Options{})
		want := []string{"a", "b"}
		if got := second.world(t); !slices.Equal(got, want) || kept == nil {
			t.Fatalf("%q, kept %q", got, kept)
		}
		first.world(t)
		defer first.session.Close()
		again := host()
		for i, name := range want {
			a := join(again, agent(name, 2), Options{})
			a.world(t)
			defer a.session.Close()
			if a.session.Rank != i || a.session.World.Nonce != second.session.World.Nonce {
				t.Errorf("%s is %d in world %+v, not in %+v", name, a.session.Rank, a.session.World, second.session.World)
			}
		}
	})
}

// What a meeting comes to is kept before anybody hears of it, and forgotten when the nodes meet anew.
func TestDecisionIsKeptFirst(t *testing.T) {
	var saw []string
	m := Host("x/", "j", []byte("{broken"), func(b []byte) {
		saw = append(saw, map[bool]string{true: "kept", false: "dropped"}[b != nil])
	})
	m.Do(func(table *store.Table) {
		set := func(key, value string) {
			if err := table.Set([]byte("x/muster/j/"+key), []byte(value)); err != nil {
				t.Fatal(err)
			}
		}
		set("incarnation", "life")
		set("life/generation", "1")
		w := &store.Waiter{Wake: func() { saw = append(saw, "heard") }}
		if _, err := table.Wait(w, [][]byte{[]byte("x/muster/j/life/1/outcome")}); err != nil {
			t.Fatal(err)
		}
		set("life/2/outcome", "of no meeting that there is")
		set("life/1/outcome", "refused")
		set("life/generation", "2")
		set("life/2/outcome", "another")
	})
	if want := []string{"kept", "heard", "dropped", "kept"}; !slices.Equal(saw, want) {
		t.Errorf("%q, want %q", saw, want)
	}
}
