package platforms

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// paddleJob: paddle-operator v0.3.5.
func paddleJob(t testing.TB, c *cluster, m manifest) {
	var spec struct {
		Intranet   string
		WithGloo   int `yaml:"withGloo"`
		PS, Worker replicas
		Elastic    int
	}
	m.into(t, &spec)
	service, port := spec.Intranet == "Service", c.port
	if service {
		port = 36000
	}
	first := len(c.made)
	hosts := func(role string, n, from int) (all []string) {
		for i := range n {
			name := fmt.Sprintf("%s-%s-%d", m.Metadata.Name, role, i)
			if all = append(all, name); !service {
				all[i] = c.ip(name, first+from+i)
			}
		}
		return all
	}
	at := func(hosts []string) string {
		end := ":" + strconv.Itoa(port)
		return strings.Join(hosts, end+",") + end
	}
	servers, trainers := hosts("ps", spec.PS.Replicas, 0), hosts("worker", spec.Worker.Replicas, spec.PS.Replicas)
	env := [][2]string{{"PADDLE_PORT", strconv.Itoa(c.port)}, {"PADDLE_TRAINERS", strings.Join(trainers, ",")}, {"PADDLE_TRAINERS_NUM", strconv.Itoa(len(trainers))},
		{"PADDLE_TRAINER_ENDPOINTS", at(trainers)}, {"TRAINER_PORTS_NUM", "20"}}
	if len(servers) > 0 {
		env = append(env, [2]string{"PADDLE_PSERVERS_IP_PORT_LIST", at(servers)})
	}
	if spec.Elastic > 0 { // the pods are told of no addresses
		env = [][2]string{{"PADDLE_ELASTIC_JOB_ID", c.namespace + "-" + m.Metadata.Name}, {"PADDLE_ELASTIC_NP", strconv.Itoa(len(trainers))}, {"PADDLE_ELASTIC_TIMEOUT", "60"}}
	}
	if spec.WithGloo == 1 && len(servers) > 0 {
		gloo := servers[0] + ":" + strconv.Itoa(port)
		if service {
			gloo = servers[0] + ":36018"
		}
		env = append(env, [][2]string{{"PADDLE_WITH_GLOO", "1"}, {"PADDLE_GLOO_RENDEZVOUS", "3"}, {"PADDLE_GLOO_HTTP_ENDPOINT", gloo}}...)
	}
	role := func(name, training string, r replicas, hosts []string) {
		for i, host := range hosts {
			pod, id := r.Template, fmt.Sprintf("%s-%s-%d", m.Metadata.Name, name, i)
			pod.Spec.Hostname, pod.Spec.Subdomain = id, id
			pod.Spec.HostNetwork = spec.Intranet == "Host"
			restart := "Never"
			if service && name == "worker" || spec.Elastic > 0 {
				restart = "OnFailure"
			}
			p := c.pod(pod, id, cmp.Or(pod.Spec.RestartPolicy, restart), append(env[:len(env):len(env)], [][2]string{{"POD_IP", host}, {"PADDLE_TRAINER_ID", strconv.Itoa(i)},
				{"TRAINING_ROLE", training}, {"PADDLE_TRAINING_ROLE", training}}...), nil)
			p.names = []string{id}
		}
	}
	role("ps", "PSERVER", spec.PS, servers)
	role("worker", "TRAINER", spec.Worker, trainers)
}

// leaderWorkerSet: LWS v0.10, one template for all.
func leaderWorkerSet(t testing.TB, c *cluster, m manifest) {
	var spec struct {
		Replicas int
		Template struct {
			Size   int
			Leader *template `yaml:"leaderTemplate"`
			Worker template  `yaml:"workerTemplate"`
		} `yaml:"leaderWorkerTemplate"`
		Network struct {
			Policy string `yaml:"subdomainPolicy"`
		} `yaml:"networkConfig"`
	}
	m.into(t, &spec)
	for g := range max(spec.Replicas, 1) {
		leader, subdomain := fmt.Sprintf("%s-%d", m.Metadata.Name, g), m.Metadata.Name
		if spec.Network.Policy == "UniquePerReplica" {
			subdomain = leader
		}
		for i := range spec.Template.Size {
			pod, name := spec.Template.Worker, fmt.Sprintf("%s-%d", leader, i)
			if i == 0 {
				name = leader
				if spec.Template.Leader != nil {
					pod = *spec.Template.Leader
				}
			}
			pod.Spec.Hostname, pod.Spec.Subdomain = name, subdomain
			c.pod(pod, name, "Always", [][2]string{{"LWS_LEADER_ADDRESS", fmt.Sprintf("%s.%s.%s", leader, subdomain, c.namespace)},
				{"LWS_GROUP_SIZE", strconv.Itoa(spec.Template.Size)}, {"LWS_WORKER_INDEX", strconv.Itoa(i)}}, nil)
		}
	}
}

// An indexedJob is what of a Job makes its pods.
type indexedJob struct {
	Completions int
	Template    template
}

// pods are numbered; name is what their hostnames begin with. Kubernetes adds five letters to their own names.
func (j indexedJob) pods(c *cluster, name string, env func(i int) [][2]string) {
	for i := range j.Completions {
		pod, host := j.Template, fmt.Sprintf("%s-%d", name, i)
		pod.Spec.Hostname = host
		c.pod(pod, host, pod.Spec.RestartPolicy, append(env(i), [2]string{"JOB_COMPLETION_INDEX", strconv.Itoa(i)}), nil)
	}
}

func none(int) [][2]string { return nil }

// kubernetesJob: Kubernetes' own, with indices.
func kubernetesJob(t testing.TB, c *cluster, m manifest) {
	var spec indexedJob
	m.into(t, &spec)
	spec.pods(c, m.Metadata.Name, none)
}

// statefulSet: Kubernetes' own.
func statefulSet(t testing.TB, c *cluster, m manifest) {
	var spec struct {
		replicas `yaml:",inline"`
		Service  string `yaml:"serviceName"`
	}
	m.into(t, &spec)
	for i := range spec.Replicas {
		pod, name := spec.Template, fmt.Sprintf("%s-%d", m.Metadata.Name, i)
		pod.Spec.Hostname, pod.Spec.Subdomain = name, spec.Service
		c.pod(pod, name, "Always", nil, nil)
	}
}

// jobSet: JobSet v0.10. Its pods tell of themselves by their names; what else it knows of them it writes into labels.
func jobSet(t testing.TB, c *cluster, m manifest) {
	var spec struct {
		Jobs []struct {
			Name     string
			Replicas int
			Template struct{ Spec indexedJob }
		} `yaml:"replicatedJobs"`
		Network struct{ Subdomain string }
	}
	m.into(t, &spec)
	for _, j := range spec.Jobs {
		for n := range max(j.Replicas, 1) {
			job := j.Template.Spec
			job.Template.Spec.Subdomain = cmp.Or(spec.Network.Subdomain, m.Metadata.Name)
			job.Template.Metadata.Labels = map[string]string{"jobset.sigs.k8s.io/restart-attempt": "0"}
			job.pods(c, fmt.Sprintf("%s-%s-%d", m.Metadata.Name, j.Name, n), none)
		}
	}
}

// trainJob: Kubeflow Trainer v2.3 with its runtimes torch-distributed and jax-distributed.
func trainJob(t testing.TB, c *cluster, m manifest) {
	var spec struct {
		Runtime struct{ Name string } `yaml:"runtimeRef"`
		Trainer struct {
			NumNodes  int    `yaml:"numNodes"`
			NumProc   string `yaml:"numProcPerNode"`
			Command   []string
			Args      []string
			Env       []variable
			Resources struct{ Limits map[string]string } `yaml:"resourcesPerNode"`
		}
	}
	m.into(t, &spec)
	nproc := cmp.Or(spec.Trainer.NumProc, "auto")
	if limits := spec.Trainer.Resources.Limits; nproc == "auto" && limits["nvidia.com/gpu"] == "" && limits["cpu"] != "" {
		nproc = limits["cpu"]
	}
	var job indexedJob
	job.Completions = max(spec.Trainer.NumNodes, 1)
	job.Template.Spec.Subdomain, job.Template.Spec.RestartPolicy = m.Metadata.Name, "OnFailure"
	job.Template.Spec.Containers = []container{{Name: "node", Command: spec.Trainer.Command, Args: spec.Trainer.Args, Env: spec.Trainer.Env}}
	name := m.Metadata.Name + "-node-0"
	job.pods(c, name, func(i int) [][2]string {
		nodes, number, first := strconv.Itoa(job.Completions), strconv.Itoa(i), name+"-0."+m.Metadata.Name
		switch spec.Runtime.Name {
		case "torch-distributed":
			return [][2]string{{"PET_NNODES", nodes}, {"PET_NPROC_PER_NODE", nproc}, {"PET_NODE_RANK", number}, {"PET_MASTER_ADDR", first}, {"PET_MASTER_PORT", "29500"}}
		case "jax-distributed":
			return [][2]string{{"JAX_NUM_PROCESSES", nodes}, {"JAX_PROCESS_ID", number}, {"JAX_COORDINATOR_ADDRESS", first + ":29500"}}
		}
		t.Fatalf("there is no model of the runtime %s", spec.Runtime.Name)
		return nil
	})
}

// sshKeys are what operators of jobs that start each other by ssh mount from a Secret.
func sshKeys() map[string]string {
	return map[string]string{"/root/.ssh/id_rsa": "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA7bqr\n-----END RSA PRIVATE KEY-----\n", "/root/.ssh/id_rsa.pub": "ssh-rsa AAAA job",
		"/root/.ssh/authorized_keys": "ssh-rsa AAAA job"}
}

// mpiJob: mpi-operator v0.8 with Open MPI.
func mpiJob(t testing.TB, c *cluster, m manifest) {
	var spec struct {
		Slots          int                 `yaml:"slotsPerWorker"`
		Replicas       map[string]replicas `yaml:"mpiReplicaSpecs"`
		Implementation string              `yaml:"mpiImplementation"`
		Works          bool                `yaml:"runLauncherAsWorker"`
	}
	m.into(t, &spec)
	if cmp.Or(spec.Implementation, "OpenMPI") != "OpenMPI" || spec.Works {
		t.Fatal("there is no model of other MPIs than Open MPI, nor of runLauncherAsWorker")
	}
	var hosts strings.Builder
	workers, slots := spec.Replicas["Worker"], strconv.Itoa(max(spec.Slots, 1))
	for i := range workers.Replicas {
		fmt.Fprintf(&hosts, "%s-worker-%d.%[1]s.%[3]s.svc slots=%[4]s\n", m.Metadata.Name, i, c.namespace, slots)
	}
	files := sshKeys()
	files["/etc/mpi/hostfile"], files["/etc/mpi/discover_hosts.sh"] = hosts.String(), "#!/bin/sh\n"
	launcher := spec.Replicas["Launcher"].Template
	launcher.Spec.Hostname, launcher.Spec.Subdomain = m.Metadata.Name+"-launcher", m.Metadata.Name
	c.pod(launcher, launcher.Spec.Hostname, cmp.Or(spec.Replicas["Launcher"].RestartPolicy, "OnFailure"), [][2]string{{"K_MPI_JOB_ROLE", "launcher"},
		{"OMPI_MCA_orte_keep_fqdn_hostnames", "true"}, {"OMPI_MCA_orte_default_hostfile", "/etc/mpi/hostfile"}, {"OMPI_MCA_plm_rsh_args", "-o ConnectionAttempts=10"},
		{"OMPI_MCA_orte_set_default_slots", slots}, {"NVIDIA_VISIBLE_DEVICES", ""}, {"NVIDIA_DRIVER_CAPABILITIES", ""}}, files)
	for i := range workers.Replicas {
		pod := workers.Template
		pod.Spec.Hostname, pod.Spec.Subdomain = fmt.Sprintf("%s-worker-%d", m.Metadata.Name, i), m.Metadata.Name
		if main := pod.Spec.Containers[0]; main.Command == nil && main.Args == nil {
			main.Command = []string{"/usr/sbin/sshd", "-De"}
			pod.Spec.Containers = []container{main}
		}
		c.pod(pod, pod.Spec.Hostname, cmp.Or(workers.RestartPolicy, "Never"), [][2]string{{"K_MPI_JOB_ROLE", "worker"}}, sshKeys())
	}
}

// deepSpeedJob: T9k's, by its manual, for its source is not public: sshd in all replicas, and deepspeed in the first.
func deepSpeedJob(t testing.TB, c *cluster, m manifest) {
	var spec struct {
		Config struct {
			Slots int `yaml:"slotsPerWorker"`
			Run   struct{ Python []string }
		}
		Worker replicas
	}
	m.into(t, &spec)
	var hosts strings.Builder
	for i := range spec.Worker.Replicas {
		fmt.Fprintf(&hosts, "%s-worker-%d slots=%d\n", m.Metadata.Name, i, max(spec.Config.Slots, 1))
	}
	files := sshKeys()
	files["/t9k/hostfile"] = hosts.String()
	for i := range spec.Worker.Replicas {
		pod, name := spec.Worker.Template, fmt.Sprintf("%s-worker-%d", m.Metadata.Name, i)
		main := pod.Spec.Containers[0]
		main.Command = []string{"/usr/sbin/sshd", "-De"}
		if i == 0 {
			main.Command = []string{"sh", "-c", "/usr/sbin/sshd && exec deepspeed --hostfile /t9k/hostfile " + strings.Join(spec.Config.Run.Python, " ")}
		}
		pod.Spec.Containers = []container{main}
		p := c.pod(pod, name, cmp.Or(spec.Worker.RestartPolicy, "OnFailure"), nil, files)
		p.names = []string{name}
	}
}

// genericJob: T9k's, by its manual. It fills in what a template's words ask for.
func genericJob(t testing.TB, c *cluster, m manifest) {
	var spec struct {
		Service struct {
			Ports []struct {
				Name string
				Port int
			}
		}
		Types []struct {
			Type     string
			Replicas int
			Restart  struct{ Policy string } `yaml:"restartPolicy"`
			Template template
		} `yaml:"replicaSpecs"`
	}
	m.into(t, &spec)
	var known [][2]string
	for _, p := range spec.Service.Ports {
		known = append(known, [2]string{"service.port[" + p.Name + "]", strconv.Itoa(p.Port)})
	}
	for _, r := range spec.Types {
		known = append(known, [2]string{"replicas[" + r.Type + "]", strconv.Itoa(r.Replicas)})
		for i := range r.Replicas {
			known = append(known, [2]string{fmt.Sprintf("service.%s[%d].host", r.Type, i), fmt.Sprintf("%s-%s-%d", m.Metadata.Name, r.Type, i)})
		}
	}
	for _, r := range spec.Types {
		for i := range r.Replicas {
			own := append(known[:len(known):len(known)], [2]string{"rank", strconv.Itoa(i)}, [2]string{"type", r.Type})
			pod, name := r.Template, fmt.Sprintf("%s-%s-%d", m.Metadata.Name, r.Type, i)
			main := pod.Spec.Containers[0]
			main.Env, main.Command = slices.Clone(main.Env), slices.Clone(main.Command)
			for i, v := range main.Env {
				main.Env[i].Value = expand(v.Value, own)
			}
			for i, word := range main.Command {
				main.Command[i] = expand(word, own)
			}
			pod.Spec.Containers = []container{main}
			p := c.pod(pod, name, cmp.Or(r.Restart.Policy, "OnFailure"), nil, nil)
			p.names = []string{name}
		}
	}
}
