package install

import (
	"testing"

	"github.com/muster-run/muster/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }
