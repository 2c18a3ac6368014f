package discovery

import (
	"fmt"
	"slices"
	"strings"
)

// volcanoDir is where the svc plugin of a Volcano job mounts its ConfigMap.
const volcanoDir = "/etc/volcano"

// volcanoPort is the pytorch plugin's default; the other plugins publish none.
const volcanoPort = 23456

// volcano is a job of Volcano's own (pkg/controllers/job/plugins), not one that Volcano only schedules. Its files follow the job when that
// grows, and its variables do not.
var volcano = platform{
	name: "volcano",
	here: func(r *reader) bool {
		return r.any("VC_TASK_INDEX", "VK_TASK_INDEX") || len(r.files(volcanoDir, ".host")) > 0 || len(r.variables("VC_", "_HOSTS")) > 0 && len(r.variables("VC_", "_NUM")) > 0
	},
	find: findVolcano,
	over: []string{"*"}, // the framework's own variables are for the workers
}

// A volcanoTask is one of a job's: its name, and its pods by name and subdomain.
type volcanoTask struct {
	name string
	pods []string
}

func findVolcano(r *reader, f *Finding) error {
	index, err := r.maybe("VC_TASK_INDEX", 0, -1)
	if index < 0 && err == nil { // very old releases have this one only
		index, err = r.maybe("VK_TASK_INDEX", 0, -1)
	}
	if err != nil {
		return err
	}
	f.Index = index
	tasks, err := volcanoTasks(r)
	if err != nil {
		return err
	}
	if len(tasks) == 0 {
		f.Rank = index // among the nodes of one task, if there is one
		if base, n, ok := ordinal(first(r.host.Hostname)); ok && n == index {
			f.Role = base[strings.LastIndexByte(base, '-')+1:]
		}
		return half("VC_TASK_INDEX says which one of a task this is, but not how many there are (the svc plugin would): say --nnodes and --rdzv-endpoint")
	}
	train := trainingTasks(r, tasks)
	own, err := volcanoSelf(r, tasks, train, f)
	if err != nil {
		return err
	}
	listed := 0
	for _, t := range tasks {
		listed += len(t.pods)
	}
	tasks = train
	if !slices.ContainsFunc(tasks, func(t volcanoTask) bool { return t.name == own }) {
		f.Barred = fmt.Errorf("the task %s does not train", own)
	}
	for _, t := range tasks {
		if t.name == own && f.Barred == nil {
			f.Rank = len(f.Hosts) + f.Index
		}
		f.Hosts = append(f.Hosts, t.pods...)
	}
	f.Nodes, f.Port = len(f.Hosts), volcanoPort
	if err := r.at(volcanoDir, f.Hosts[0], f); err != nil {
		return err
	}
	if r.get("TF_CONFIG") != "" {
		return volcanoTensorFlow(r, f)
	}
	return volcanoTorch(r, f, listed)
}

// volcanoTasks are the job's tasks: by the files, and by the variables those that have none.
func volcanoTasks(r *reader) (tasks []volcanoTask, err error) {
	var filed []string
	for _, name := range r.files(volcanoDir, ".host") {
		path, task := volcanoDir+"/"+name, strings.TrimSuffix(name, ".host")
		filed = append(filed, strings.ToUpper(task))
		if tasks, err = addTask(tasks, path, task, strings.Fields(r.file(path))); err != nil {
			return nil, err
		}
	}
	for _, name := range r.variables("VC_", "_HOSTS") {
		task := strings.TrimSuffix(strings.TrimPrefix(name, "VC_"), "_HOSTS")
		if slices.Contains(filed, task) {
			continue
		}
		all := list(r.text(name))
		if n, ok := r.plain("VC_" + task + "_NUM"); ok && n != len(all) {
			return nil, fmt.Errorf("%s has %d pods, but VC_%s_NUM=%d", name, len(all), task, n)
		}
		if tasks, err = addTask(tasks, name, strings.ToLower(task), all); err != nil {
			return nil, err
		}
	}
	return tasks, unlisted(r, filed)
}

// unlisted is an error where a task has pods by its number, but no list of them: filed are those of which there is a file.
func unlisted(r *reader, filed []string) error {
	for _, name := range r.variables("VC_", "_NUM") {
		task := strings.TrimSuffix(strings.TrimPrefix(name, "VC_"), "_NUM")
		if n, ok := r.plain(name); ok && n > 0 && !slices.Contains(filed, task) && r.get("VC_"+task+"_HOSTS") == "" {
			return fmt.Errorf("%s=%d, but VC_%s_HOSTS, which names those pods, is not set, and %s has no file of them: say --nnodes, --node-rank and --rdzv-endpoint", name, n, task, volcanoDir)
		}
	}
	return nil
}

// addTask adds a task under the name that the manifest gives it, which its pods' names have: in variables and files "-" is "_".
func addTask(tasks []volcanoTask, from, name string, pods []string) ([]volcanoTask, error) {
	if len(pods) == 0 {
		return tasks, nil
	}
	pods, err := hosts(pods)
	if err != nil {
		return nil, fmt.Errorf("%s %w", from, err)
	}
	pod, set, _ := strings.Cut(pods[0], ".")
	if middle, _, ok := ordinal(pod); ok {
		if task, ok := strings.CutPrefix(middle, first(set)+"-"); ok && strings.ReplaceAll(task, "-", "_") == strings.ToLower(name) {
			name = task
		}
	}
	return append(tasks, volcanoTask{name, pods}), nil
}

// volcanoSelf finds this pod among those of all tasks, by its name, or by its number where there is one task only: on the host's network
// the pod has the host's name.
func volcanoSelf(r *reader, tasks, train []volcanoTask, f *Finding) (own string, err error) {
	at, pod := -1, strings.ToLower(first(r.host.Hostname))
	for _, name := range []string{pod, first(volcanoPod(r, train))} {
		for _, t := range tasks {
			if i := slices.IndexFunc(t.pods, func(pod string) bool { return name != "" && first(pod) == name }); i >= 0 && at < 0 {
				own, at = t.name, i
			}
		}
	}
	if task := r.text("MUSTER_TASK"); own == "" && task != "" {
		own = task
	}
	_, set, _ := strings.Cut(tasks[0].pods[0], ".")
	sub, _ := r.subdomain()
	switch {
	case own == "" && sub != "" && sub == first(set):
		return "", fmt.Errorf("%s is a pod of the job %s by its name, but in no list of %s", r.host.Hostname, sub, volcanoDir)
	case own == "" && len(tasks) == 1:
		own = tasks[0].name
	case own == "":
		return "", half("%s is in no list of %s, and there are %d tasks: say --nnodes, --node-rank and --rdzv-endpoint, or the task's name in MUSTER_TASK", r.host.Hostname, volcanoDir, len(tasks))
	case at >= 0 && f.Index >= 0 && at != f.Index:
		return "", fmt.Errorf("VC_TASK_INDEX=%d, but %s is number %d of its task's pods", f.Index, r.host.Hostname, at)
	}
	f.Role, f.Index = volcanoRole(own), max(at, f.Index)
	i := slices.IndexFunc(tasks, func(t volcanoTask) bool { return t.name == own })
	switch {
	case i < 0:
		return "", fmt.Errorf("MUSTER_TASK=%s is no task of this job", clip(own))
	case f.Index < 0:
		return "", half("%s is in no list of %s, and VC_TASK_INDEX does not say which one this is: say --nnodes, --node-rank and --rdzv-endpoint", r.host.Hostname, volcanoDir)
	case f.Index >= len(tasks[i].pods):
		return "", fmt.Errorf("VC_TASK_INDEX=%d, but the task %s has %d pods", f.Index, own, len(tasks[i].pods))
	}
	return own, nil
}

// volcanoPod is this pod's name where the host's network hides it: by its place in TF_CONFIG, or by the pytorch plugin's RANK.
func volcanoPod(r *reader, train []volcanoTask) string {
	if c, err := parseTFConfig(r.get("TF_CONFIG")); err == nil {
		if own := c.Cluster[c.Task.Type].list; int(c.Task.Index) < len(own) {
			host, _, _ := Endpoint(own[c.Task.Index])
			return host
		}
	}
	rank, ok := r.plain("RANK")
	if !ok || masterTask(r, train) < 0 {
		return ""
	}
	for _, t := range train {
		if rank < len(t.pods) {
			return t.pods[rank]
		}
		rank -= len(t.pods)
	}
	return ""
}

// masterTask is the one that the pytorch plugin's MASTER_ADDR is of; -1: there is none.
func masterTask(r *reader, tasks []volcanoTask) int {
	return slices.IndexFunc(tasks, func(t volcanoTask) bool { return slices.Contains(t.pods, strings.ToLower(r.get("MASTER_ADDR"))) })
}

// pluginTasks are the two that the pytorch plugin knows, whatever they are called: the master's and "worker", or the one other task that makes
// up WORLD_SIZE.
func pluginTasks(r *reader, tasks []volcanoTask) []volcanoTask {
	size, ok := r.plain("WORLD_SIZE")
	m := masterTask(r, tasks)
	if !ok || m < 0 || len(tasks) < 3 {
		return tasks
	}
	var fit []volcanoTask
	for i, t := range tasks {
		switch {
		case i == m:
		case t.name == "worker":
			return []volcanoTask{tasks[m], t}
		case len(tasks[m].pods)+len(t.pods) == size:
			fit = append(fit, t)
		}
	}
	if len(fit) == 1 {
		return []volcanoTask{tasks[m], fit[0]}
	}
	return tasks
}

// volcanoRole is what a task is: the mpi plugin's examples call theirs mpimaster and mpiworker.
func volcanoRole(task string) string {
	switch task {
	case "mpimaster":
		return "launcher"
	case "mpiworker":
		return "worker"
	}
	return task
}

// serving are tasks that do not train, by the names that people give them.
var serving = strings.Fields("ps pserver parameter-server server scheduler evaluator eval tensorboard visualdl mpimaster")

// leading are tasks whose first node is the job's.
var leading = strings.Fields("master launcher chief head")

// trainingTasks are those that train, by rank: one that leads, then the others by name, as people count.
func trainingTasks(r *reader, tasks []volcanoTask) (train []volcanoTask) {
	mpi := list(r.get("MPI_HOST"))
	for _, t := range tasks {
		switch {
		case len(mpi) > 0 && !slices.Contains(mpi, t.pods[0]):
		case len(mpi) == 0 && slices.Contains(serving, t.name):
		default:
			train = append(train, t)
		}
	}
	if len(train) == 0 {
		train = slices.Clone(tasks)
	}
	train = pluginTasks(r, train)
	master := strings.ToLower(r.get("MASTER_ADDR"))
	slices.SortStableFunc(train, func(a, b volcanoTask) int {
		if x, y := leads(a, master), leads(b, master); x != y {
			return x - y
		}
		return natural(a.name, b.name)
	})
	return train
}

// leads orders a task: that of MASTER_ADDR, one that is called so, others.
func leads(t volcanoTask, master string) int {
	switch {
	case slices.Contains(t.pods, master):
		return 0
	case slices.Contains(leading, t.name):
		return 1
	}
	return 2
}

// volcanoTorch compares with what the pytorch plugin says. Before Volcano 1.12 its WORLD_SIZE counts the pods of all tasks. A master for which it counts
// more of them than all lists have would train alone.
func volcanoTorch(r *reader, f *Finding, listed int) error {
	if !slices.Contains(f.Hosts, strings.ToLower(r.get("MASTER_ADDR"))) {
		if v := r.get("MASTER_ADDR"); v != "" {
			r.warn("master_addr", "MASTER_ADDR=%s is no pod of this Volcano job: it is left aside", clip(v))
		}
		return nil
	}
	n, ok := r.plain("WORLD_SIZE")
	if ok && f.Nodes == 1 && n > listed && r.any("RANK") && !r.any("LOCAL_WORLD_SIZE", sizeVariable) {
		return fmt.Errorf("WORLD_SIZE=%d, but %s has %d pods in all, and this one alone would train: a list is missing there; say --nnodes, --node-rank and --rdzv-endpoint "+
			"(--nnodes 1 for a run of this node alone)", n, volcanoDir, listed)
	}
	if ok && n != f.Nodes {
		r.warn("world_size", "WORLD_SIZE=%d, but %d pods of the tasks in %s train: those count", n, f.Nodes, volcanoDir)
	}
	rank, ok := r.plain("RANK")
	switch {
	case ok && f.Rank >= 0 && rank != f.Rank && !r.any("LOCAL_WORLD_SIZE"):
		return fmt.Errorf("RANK=%d, but by %s this is node %d of %d", rank, volcanoDir, f.Rank, f.Nodes)
	case ok:
		r.text("RANK")
	}
	port, err := r.port("MASTER_PORT")
	if port > 0 {
		f.Port = port
	}
	r.text("MASTER_ADDR")
	return err
}

// volcanoTensorFlow compares with what the tensorflow plugin says, which knows the roles of tasks whatever their names.
func volcanoTensorFlow(r *reader, f *Finding) error {
	c, err := parseTFConfig(r.get("TF_CONFIG"))
	if err != nil {
		r.warn("tf-config", "TF_CONFIG is left aside: %v", err)
		return nil
	}
	t := unsaid(f.Rule)
	if err := c.fill(&t); err != nil || t.Nodes == 0 || !slices.Contains(f.Hosts, t.Host) {
		return nil // it is of another cluster
	}
	if t.Nodes != f.Nodes {
		r.warn("tf-config", "TF_CONFIG says %d nodes that train, the tasks in %s %d: TF_CONFIG knows their roles", t.Nodes, volcanoDir, f.Nodes)
	}
	r.text("TF_CONFIG")
	f.Nodes, f.Rank, f.Host, f.Port, f.Taken, f.Hosts, f.Servers, f.Serves, f.Barred = t.Nodes, t.Rank, t.Host, t.Port, true, t.Hosts, t.Servers, t.Serves, t.Barred
	f.Outside = t.Outside
	f.Role, f.Index, f.Decider = t.Role, t.Index, t.Decider
	f.Framework, f.FrameworkBy = "tensorflow", "TF_CONFIG"
	return nil
}
