package platforms

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-run/muster/test/stage"
)

// slurmConf is a cluster of two machines. They have no GPUs, so that none are asked for.
const slurmConf = `ClusterName=stage
SlurmctldHost=gpu1(10.77.0.1)
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SelectType=select/cons_tres
ReturnToService=2
NodeName=gpu1 NodeAddr=10.77.0.1 CPUs=2 State=UNKNOWN
NodeName=gpu2 NodeAddr=10.77.0.2 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=gpu[1-2] Default=YES State=UP
`

// slurmd starts a machine's part of the cluster, and the controller on the first.
const slurmd = `
cp -r "$1"/usr /
ln -sf slurmstepd-wlm /usr/sbin/slurmstepd
mkdir -p /var/spool/slurmctld /var/spool/slurmd /var/log/munge /var/lib/munge /run/munge
chmod 700 /var/log/munge /var/lib/munge
ldconfig
munged --force --key-file=/etc/slurm/munge.key
[ $(hostname) != gpu1 ] || slurmctld-wlm
exec slurmd-wlm -D -N $(hostname)`

// TestSlurm has the script of examples/slurm run by Slurm: sbatch on one of two machines, and its step on both.
func TestSlurm(t *testing.T) {
	script := filepath.Join(examples, "slurm/job.sbatch")
	if out, err := exec.Command("bash", "-n", script).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !*everything {
		return
	}
	muster, packages := stage.Build(t), stage.Printed(t, "./slurm")
	s := stage.Open(t, 1)
	e := example{name: "slurm", ranks: []int{0, 1}, play: &play{files: map[string]string{"/srv/train/train.py": torch, "/srv/train/job.sbatch": script}}}
	within := func(m *stage.Machine, argv ...string) []string {
		env := []string{"chroot", m.Dir + "/root", "env", "-i", "-C", "/srv/train", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/root", "MUSTER_NPROC_PER_NODE=1"}
		return append(env, argv...)
	}
	for i := range 2 {
		name := fmt.Sprint("gpu", i+1)
		m := s.Add(name, name)
		p := &pod{bare: true}
		p.Hostname, p.Namespace, p.IP = name, "default", m.Addr
		p.Files = map[string]string{"/etc/slurm/slurm.conf": slurmConf, "/etc/slurm/munge.key": strings.Repeat("of this test ", 9)}
		e.image(t, m, p, muster)
		if said := m.Ask("mount", "-t", "proc", "proc", m.Dir+"/root/proc"); said != "" {
			t.Fatal(said)
		}
	}
	s.Switch.Network("ip", "addr add "+nameserver+"/24 dev br0\n")
	names := serveDNS(t, s.Switch.PID(), nameserver)
	var daemons []*stage.Program
	for _, m := range s.Machines() {
		names.add(m.Name+".default.svc.cluster.local", m.Addr, sometime())
		daemons = append(daemons, m.Run(nil, within(m, "sh", "-euc", slurmd, "sh", packages)...))
	}
	if !s.Await(patience, func() bool {
		return !slices.ContainsFunc(daemons, func(p *stage.Program) bool { return !strings.Contains(p.Said(), "slurmd-wlm started") })
	}) {
		t.Fatal("the cluster does not start")
	}
	first := s.Machines()[0]
	job := first.Run(nil, within(first, "sh", "-uc", `sed -i /--gpus-per-node/d job.sbatch; sbatch --wait job.sbatch; cat slurm-*.out; scontrol -o show job 1`)...)
	if !s.Await(patience, func() bool { return !job.Running() }) {
		t.Error("the job does not end")
	}
	for _, want := range slices.Concat(together(2, 0, 1), []string{"JobState=COMPLETED", "ExitCode=0:0"}) {
		if !strings.Contains(job.Said(), want) {
			t.Errorf("the job does not say %q, but\n%s", want, job.Said())
		}
	}
	loop := first.Run(nil, within(first, "sh", "-uc", `sbatch --wait --nodes 2 --output loop.out --wrap "$1"; cat loop.out`, "sh", slurmLoop)...)
	if !s.Await(patience, func() bool { return !loop.Running() }) {
		t.Error("the loop does not end")
	}
	for _, want := range []string{"srun started this on one of the job's 2 nodes", "gpu1: 2", "gpu2: 2", "trained on gpu1\n", "trained on gpu2\n", "rank 0 of 2 on gpu1\n", "rank 1 of 2 on gpu2\n"} {
		if !strings.Contains(loop.Said(), want) {
			t.Errorf("the loop does not say %q, but\n%s", want, loop.Said())
		}
	}
}

// slurmLoop starts a step on each node, as people do who number them by hand: without numbers each would train alone, which is to be said; with them they meet.
const slurmLoop = `
for n in gpu1 gpu2; do
	srun -N1 -n1 -w $n muster run -- true; echo $n: $?
	MUSTER_NNODES=1 srun -N1 -n1 -w $n muster run -- sh -c 'echo trained on $(hostname)'
done
for i in 0 1; do
	srun -N1 -n1 -w gpu$((i+1)) muster torchrun --nnodes 2 --node-rank $i --master-addr gpu1 --no-python sh -c 'echo rank $RANK of $WORLD_SIZE on $(hostname)' &
done
wait`
