package platforms

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A volcanoSpec is what of Volcano's Job makes its pods.
type volcanoSpec struct {
	Plugins map[string][]string
	Tasks   []volcanoTask
}

type volcanoTask struct {
	Name     string
	Replicas int
	Template template
}

// volcanoJob: Volcano v1.14 with its plugins, those of frameworks too, which have svc with them.
func volcanoJob(t testing.TB, c *cluster, m manifest) {
	var spec volcanoSpec
	m.into(t, &spec)
	has := func(plugin string) bool { _, ok := spec.Plugins[plugin]; return ok }
	known := []string{"env", "svc", "ssh", "pytorch", "tensorflow", "mpi"}
	for plugin := range spec.Plugins {
		if !slices.Contains(known, plugin) {
			t.Fatalf("there is no model of the plugin %s", plugin)
		}
	}
	svc := has("svc") || slices.ContainsFunc(known[3:], has)
	files, hosts := map[string]string{}, [][2]string{}
	for _, task := range spec.Tasks {
		names := task.names(m.Metadata.Name, "")
		file := strings.ReplaceAll(task.Name, "-", "_")
		name, number := "VC_"+strings.ToUpper(file)+"_HOSTS", "VC_"+strings.ToUpper(file)+"_NUM"
		hosts = append(hosts, [2]string{name, strings.Join(names, ",")}, [2]string{number, strconv.Itoa(task.Replicas)})
		files["/etc/volcano/"+file+".host"] = strings.Join(names, "\n")
		files["/etc/volcano/"+name], files["/etc/volcano/"+number] = strings.Join(names, ","), strconv.Itoa(task.Replicas)
	}
	if !svc {
		files, hosts = map[string]string{}, nil
	}
	if has("ssh") || has("mpi") {
		maps.Copy(files, sshKeys())
	}
	for _, task := range spec.Tasks {
		for i := range task.Replicas {
			pod, vars := task.Template, slices.Clone(hosts)
			if name := fmt.Sprintf("%s-%s-%d", m.Metadata.Name, task.Name, i); svc {
				pod.Spec.Hostname, pod.Spec.Subdomain = cmp.Or(pod.Spec.Hostname, name), cmp.Or(pod.Spec.Subdomain, m.Metadata.Name)
			}
			if index := strconv.Itoa(i); has("env") {
				vars = append(vars, [2]string{"VK_TASK_INDEX", index}, [2]string{"VC_TASK_INDEX", index})
			}
			vars = append(vars, spec.framework(t, m.Metadata.Name, task.Name, i)...)
			c.pod(pod, fmt.Sprintf("%s-%s-%d", m.Metadata.Name, task.Name, i), pod.Spec.RestartPolicy, vars, files)
		}
	}
}

// names are those of a task's pods in DNS, and what follows them.
func (task volcanoTask) names(job, end string) (all []string) {
	for i := range task.Replicas {
		all = append(all, fmt.Sprintf("%s-%s-%d.%[1]s%[4]s", job, task.Name, i, end))
	}
	return all
}

// framework is what a pod is told by the plugin of a framework, if there is one.
func (s volcanoSpec) framework(t testing.TB, job, task string, index int) [][2]string {
	tasks := map[string]volcanoTask{}
	for _, t := range s.Tasks {
		tasks[t.Name] = t
	}
	if words, ok := s.Plugins["pytorch"]; ok {
		master, worker := tasks[argument(words, "master", "master")], tasks[argument(words, "worker", "worker")]
		env := [][2]string{{"MASTER_ADDR", fmt.Sprintf("%s-%s-0.%[1]s", job, master.Name)}, {"MASTER_PORT", argument(words, "port", "23456")},
			{"WORLD_SIZE", strconv.Itoa(master.Replicas + worker.Replicas)}}
		switch task { // others are not told of a rank
		case master.Name:
			env = append(env, [2]string{"RANK", strconv.Itoa(index)})
		case worker.Name:
			env = append(env, [2]string{"RANK", strconv.Itoa(master.Replicas + index)})
		}
		return env
	}
	if words, ok := s.Plugins["tensorflow"]; ok {
		var config struct {
			Cluster struct {
				PS        []string `json:"ps,omitempty"`
				Worker    []string `json:"worker,omitempty"`
				Chief     []string `json:"chief,omitempty"`
				Evaluator []string `json:"evaluator,omitempty"`
			} `json:"cluster"`
			Task struct {
				Type  string `json:"type"`
				Index int    `json:"index"`
			} `json:"task"`
		}
		config.Task.Index = index
		for role, hosts := range map[string]*[]string{"ps": &config.Cluster.PS, "worker": &config.Cluster.Worker, "chief": &config.Cluster.Chief, "evaluator": &config.Cluster.Evaluator} {
			name := argument(words, role, role)
			*hosts = tasks[name].names(job, ":"+argument(words, "port", "2222"))
			if name == task {
				config.Task.Type = role
			}
		}
		text, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		return [][2]string{{"TF_CONFIG", string(text)}}
	}
	if words, ok := s.Plugins["mpi"]; ok && task == argument(words, "master", "master") {
		return [][2]string{{"MPI_HOST", strings.Join(tasks[argument(words, "worker", "worker")].names(job, ""), ",")}}
	}
	return nil
}

// argument is what a plugin is told of a name.
func argument(words []string, name, unsaid string) string {
	for _, word := range words {
		if value, ok := strings.CutPrefix(word, "--"+name+"="); ok {
			return value
		}
	}
	return unsaid
}
