package tcpstore

import (
	"testing"

	"github.com/muster-run/muster/rendezvous/store"
	"github.com/muster-run/muster/rendezvous/storetest"
)

func TestStore(t *testing.T) {
	storetest.Test(t, func(t *testing.T) func() store.Store {
		addr := serve(t, &Server{})
		return func() store.Store { return dial(t, addr) }
	})
}
