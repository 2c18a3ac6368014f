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

// A kubeflowJob is what all kinds of the training operator have.
type kubeflowJob struct {
	roles    []string
	replicas map[string]replicas
}

// total is how many pods it has.
func (j kubeflowJob) total() (n int) {
	for _, role := range j.roles {
		n += j.replicas[role].Replicas
	}
	return n
}

// each makes the pods, all of which have a Service of their own.
func (j kubeflowJob) each(c *cluster, m manifest, env func(role string, index, nth int, ip string) [][2]string) {
	for _, role := range j.roles {
		r := j.replicas[role]
		for i := range r.Replicas {
			name := fmt.Sprintf("%s-%s-%d", m.Metadata.Name, strings.ToLower(role), i)
			nth := len(c.made)
			p := c.pod(r.Template, name, cmp.Or(r.RestartPolicy, "OnFailure"), env(role, i, nth, c.ip(name, nth)), nil)
			p.names = []string{name}
		}
	}
}

// pytorchJob: training-operator v1.9.
func pytorchJob(t testing.TB, c *cluster, m manifest) {
	var spec struct {
		NProcPerNode string              `yaml:"nprocPerNode"`
		Replicas     map[string]replicas `yaml:"pytorchReplicaSpecs"`
		Elastic      *elastic            `yaml:"elasticPolicy"`
	}
	m.into(t, &spec)
	job := kubeflowJob{[]string{"Master", "Worker"}, spec.Replicas}
	nodes, nproc, size := job.total(), cmp.Or(spec.NProcPerNode, "auto"), job.total()
	if n, err := strconv.Atoi(nproc); err == nil {
		size *= n
	}
	port := "23456"
	for _, p := range spec.Replicas["Master"].Template.ports() {
		if p.Name == "pytorchjob-port" {
			port = strconv.Itoa(p.ContainerPort)
		}
	}
	job.each(c, m, func(_ string, _, nth int, _ string) [][2]string {
		env := [][2]string{{"PYTHONUNBUFFERED", "1"}}
		if master := m.Metadata.Name + "-master-0"; spec.Replicas["Master"].Replicas > 0 {
			rank := strconv.Itoa(nth)
			env = append(env, [][2]string{{"MASTER_PORT", port}, {"PET_MASTER_PORT", port}, {"MASTER_ADDR", master}, {"PET_MASTER_ADDR", master},
				{"WORLD_SIZE", strconv.Itoa(size)}, {"RANK", rank}, {"PET_NODE_RANK", rank}}...)
		}
		env = append(env, [2]string{"PET_NPROC_PER_NODE", nproc})
		if spec.Elastic != nil {
			return append(env, spec.Elastic.env(m.Metadata.Name+"-worker-0", port)...)
		}
		return append(env, [2]string{"PET_NNODES", strconv.Itoa(nodes)})
	})
}

// elastic is what a PyTorchJob says of nodes that come and go.
type elastic struct {
	Min      int                           `yaml:"minReplicas"`
	Max      int                           `yaml:"maxReplicas"`
	Restarts int                           `yaml:"maxRestarts"`
	Backend  string                        `yaml:"rdzvBackend"`
	ID       string                        `yaml:"rdzvId"`
	Host     string                        `yaml:"rdzvHost"`
	Port     int                           `yaml:"rdzvPort"`
	Conf     []struct{ Key, Value string } `yaml:"rdzvConf"`
}

func (e elastic) env(host, port string) [][2]string {
	if e.Port != 0 {
		port = strconv.Itoa(e.Port)
	}
	env := [][2]string{{"PET_RDZV_ENDPOINT", cmp.Or(e.Host, host) + ":" + port}, {"PET_RDZV_BACKEND", cmp.Or(e.Backend, "c10d")},
		{"PET_NNODES", fmt.Sprintf("%d:%d", e.Min, e.Max)}, {"PET_MAX_RESTARTS", strconv.Itoa(e.Restarts)}}
	if e.ID != "" {
		env = append(env, [2]string{"PET_RDZV_ID", e.ID})
	}
	var conf []string
	for _, kv := range e.Conf {
		conf = append(conf, kv.Key+"="+kv.Value)
	}
	if conf != nil {
		env = append(env, [2]string{"PET_RDZV_CONF", strings.Join(conf, ",")})
	}
	return env
}

// tfJob: training-operator v1.9. Containers are told of the cluster if it has several pods.
func tfJob(t testing.TB, c *cluster, m manifest) {
	var spec struct {
		Replicas map[string]replicas `yaml:"tfReplicaSpecs"`
		Dynamic  bool                `yaml:"enableDynamicWorker"`
	}
	m.into(t, &spec)
	if spec.Dynamic {
		t.Fatal("there is no model of enableDynamicWorker")
	}
	job := kubeflowJob{replicas: map[string]replicas{}}
	hosts := map[string][]string{}
	for role, r := range spec.Replicas {
		job.replicas[strings.ToLower(role)] = r
	}
	job.roles = slices.Sorted(maps.Keys(job.replicas))
	for _, role := range job.roles {
		for i := range job.replicas[role].Replicas {
			hosts[role] = append(hosts[role], fmt.Sprintf("%s-%s-%d.%s.svc:2222", m.Metadata.Name, role, i, c.namespace))
		}
	}
	job.each(c, m, func(role string, index, _ int, _ string) [][2]string {
		if job.total() == 1 {
			return nil
		}
		return [][2]string{{"TF_CONFIG", clusterOf(t, hosts, role, index)}}
	})
}

// clusterOf is a TF_CONFIG.
func clusterOf(t testing.TB, hosts map[string][]string, role string, index int) string {
	t.Helper()
	var config struct {
		Cluster map[string][]string `json:"cluster"`
		Task    struct {
			Type  string `json:"type"`
			Index int    `json:"index"`
		} `json:"task"`
		Environment string `json:"environment"`
	}
	config.Cluster, config.Environment = hosts, "cloud"
	config.Task.Type, config.Task.Index = role, index
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// kubeflowPaddle: training-operator v1.9, whose PaddleJob is not that of paddle-operator.
func kubeflowPaddle(t testing.TB, c *cluster, m manifest) {
	var spec struct {
		Replicas map[string]replicas `yaml:"paddleReplicaSpecs"`
	}
	m.into(t, &spec)
	job := kubeflowJob{[]string{"Master", "Worker"}, spec.Replicas}
	servers := spec.Replicas["Master"].Replicas > 0
	job.each(c, m, func(role string, index, nth int, ip string) [][2]string {
		env := [][2]string{{"PYTHONUNBUFFERED", "1"}, {"PADDLE_JOB_ID", m.Metadata.Name}, {"PADDLE_NNODES", strconv.Itoa(job.total())}}
		switch {
		case nth == 0:
			env = append(env, [][2]string{{"POD_IP_DUMMY", ip}, {"PADDLE_MASTER", ip + ":36543"}}...)
		case servers:
			env = append(env, [2]string{"PADDLE_MASTER", m.Metadata.Name + "-master-0:36543"})
		default:
			env = append(env, [2]string{"PADDLE_MASTER", m.Metadata.Name + "-worker-0:36543"})
		}
		switch {
		case servers && role == "Master":
			env = append(env, [2]string{"PADDLE_SERVER_NUM", "1"})
		case servers:
			env = append(env, [2]string{"PADDLE_TRAINER_NUM", "1"})
		}
		return env
	})
}
