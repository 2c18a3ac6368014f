package launcher

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What workers are is seen behind an interpreter, in a module, in what a shell script runs, and one module deep.
func TestGuess(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"train.py": "import paddle\n", "torchy.py": "import torch\n", "both.py": "import paddle\nimport torch\n",
		"entry.py": "from model import net\n", "model.py": "import paddle\n", "deep.py": "import entry\n", "beside.py": "from pkg import layers\n",
		"pkg/train.py": "from . import layers\nfrom .nothing import x\n", "pkg/layers.py": "import tensorflow\n", "pkg/__main__.py": "import pkg.layers\n",
		"lib/far/run.py": "import jax\n", "weak.py": "import keras\n",
		"lazy.py": "import data\ndef main():\n    import torch\n", "data.py": "import tensorflow\n", "trainer.py": "import tensorflow\nfrom transformers import Trainer\n",
		"unread.sh": "python prepare.py\npython \"$SCRIPT\"\n", "away.sh": "python prepare.py\ncd src\npython x.py\n", "far.sh": "python prepare.py\npython -m trainlib.run\n",
		"pip.sh": "python -m pip install x\npython train.py\n",
		"job.sh": "#!/bin/sh\nset -e\nexec python -u train.py \"$@\"\n", "two.sh": "python prepare.py\npython torchy.py\n", "prepare.py": "import tensorflow\n",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ command, name, note string }{
		{"train.py --lr 1", "paddle", "train.py imports paddle: --framework paddle; say --framework torch if that is wrong"},
		{"python3 train.py", "paddle", "train.py imports paddle: --framework paddle; say --framework torch if that is wrong"},
		{"/opt/venv/bin/python3.11 -X dev -u train.py", "paddle", "train.py imports paddle: "},
		{"env A=b python train.py", "paddle", "train.py imports paddle: "},
		{"./job.sh", "paddle", "train.py imports paddle: "},
		{"bash job.sh", "paddle", "train.py imports paddle: "},
		{"bash two.sh", "", "prepare.py imports tensorflow, torchy.py imports torch: --framework torch; say --framework if that is wrong"},
		{"entry.py", "paddle", "entry.py imports paddle: "},
		{"deep.py", "", ""},
		{"lazy.py", "", "lazy.py imports tensorflow and torch: --framework torch"},
		{"trainer.py", "", "trainer.py imports tensorflow and transformers: --framework torch"},
		{"sh unread.sh", "", ""},
		{"sh away.sh", "", ""},
		{"sh far.sh", "", ""},
		{"sh pip.sh", "paddle", "train.py imports paddle: "},
		{"beside.py", "tensorflow", "beside.py imports tensorflow: "},
		{"-m pkg.train", "tensorflow", "pkg.train imports tensorflow: "},
		{"-m pkg", "tensorflow", "pkg imports tensorflow: "},
		{"python -m pkg.train", "tensorflow", "pkg.train imports tensorflow: "},
		{"-m far.run", "jax", "far.run imports jax: "},
		{"-m missing", "", ""},
		{"weak.py", "tensorflow", "weak.py imports keras: --framework tensorflow; say --framework torch if that is wrong"},
		{"torchy.py", "", ""},
		{"both.py", "", "both.py imports paddle and torch: --framework torch; say --framework if that is wrong"},
		{"python -c pass", "", ""},
		{"./a.out train.py", "", ""},
		{"", "", ""},
	} {
		conf := Config{Environ: []string{"PYTHONPATH=/nowhere:lib"}}
		conf.Host.ReadFile, conf.Host.Getenv = os.ReadFile, os.Getenv
		conf.Argv = strings.Fields(c.command)
		if rest, module := strings.CutPrefix(c.command, "-m "); module {
			conf.Module, conf.Argv = true, []string{rest}
		}
		var p Plan
		name, _ := p.guess(conf)
		if note := strings.Join(p.Notes, "\n"); name != c.name || !strings.HasPrefix(note, c.note) || (c.note == "") != (note == "") {
			t.Errorf("%s: %q, %q", c.command, name, note)
		}
	}
}
