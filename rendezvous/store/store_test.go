package store_test

import (
	"testing"

	"github.com/muster-run/muster/rendezvous/store"
	"github.com/muster-run/muster/rendezvous/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Test(t, func(t *testing.T) func() store.Store {
		m := new(store.Memory)
		return func() store.Store { return m }
	})
}
