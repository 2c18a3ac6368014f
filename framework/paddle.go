package framework

import (
	"net"
	"strconv"
	"strings"

	"github.com/muster-run/muster/job"
)

// paddle is what PaddlePaddle reads: without parameter servers paddle.distributed.init_parallel_env and fleet (python/paddle/distributed/parallel.py),
// with them fleet's role maker (python/paddle/distributed/fleet/base/role_maker.py).
var paddle = Framework{
	Name:    "paddle",
	Doc:     "PaddlePaddle: collective training, or with --ps parameter servers",
	Master:  true,
	Listens: true,
	Calls:   true,
	IPv4:    true, // python/paddle/distributed/parallel.py: endpoints.split(":")
	Imports: "paddle paddlenlp",
	Library: "libpaddle.so",
	Servers: true,
	Success: "trainers",
	env:     paddleEnv,
}

func paddleEnv(p Place, local int, given func(string) (string, bool)) job.Env {
	e := append(p.ranks(local), p.meeting()...)
	role := paddleTrainer
	switch {
	case p.Group >= p.trainers():
		role = paddleServer
	case p.Servers == 0:
		role = paddleCollective
	}
	e = append(e, role(p, local)...)
	if p.Servers > 0 {
		e = append(e, job.Var{Name: "PADDLE_PSERVERS_IP_PORT_LIST", Value: strings.Join(p.endpoints(p.trainers(), len(p.World.Members)), ","), Why: "where all parameter servers listen"})
		e = append(e, unset(given, job.Var{Name: "PADDLE_WITH_GLOO", Value: "0", Why: "no further meeting: the lists say where all are"})...)
	}
	e = append(e, paddleGloo(p, given)...)
	e = append(e, paddleDevice(p, local)...)
	return append(e, unset(given, unbuffered)...)
}

// paddleCollective is the contract of all workers where none is a server.
func paddleCollective(p Place, local int) job.Env {
	me := p.World.Members[p.Group]
	rank, size := strconv.Itoa(me.First+local), strconv.Itoa(p.World.Size())
	number, locals := p.Local(local)
	_, nodes := p.Node()
	local0 := strconv.Itoa(number)
	return append(paddleWorkers(p, local),
		job.Var{Name: "PADDLE_TRAINER_ID", Value: rank, Why: "RANK, in Paddle's words"},
		job.Var{Name: "PADDLE_MASTER", Value: p.master(), Why: "where rank 0 hosts Paddle's store, fresh each round"},
		job.Var{Name: "PADDLE_TRAINING_ROLE", Value: "TRAINER", Why: "without parameter servers, all train"},
		job.Var{Name: "PADDLE_GLOBAL_RANK", Value: rank, Why: "its launcher's name for RANK"},
		job.Var{Name: "PADDLE_GLOBAL_SIZE", Value: size, Why: "its launcher's name for WORLD_SIZE"},
		job.Var{Name: "PADDLE_LOCAL_RANK", Value: local0, Why: "its launcher's name for LOCAL_RANK"},
		job.Var{Name: "PADDLE_LOCAL_SIZE", Value: strconv.Itoa(locals), Why: "its launcher's name for LOCAL_WORLD_SIZE"},
		job.Var{Name: "PADDLE_RANK_IN_NODE", Value: local0, Why: "fleet's name for LOCAL_RANK"},
		job.Var{Name: "PADDLE_NNODES", Value: strconv.Itoa(nodes), Why: "number of nodes"},
	)
}

// paddleWorkers is what all processes know of those that train.
func paddleWorkers(p Place, local int) job.Env {
	trainers := p.endpoints(0, p.trainers())
	return job.Env{
		{Name: "PADDLE_TRAINERS_NUM", Value: strconv.Itoa(len(trainers)), Why: "how many train"},
		{Name: "PADDLE_TRAINER_ENDPOINTS", Value: strings.Join(trainers, ","), Why: "where those who train listen, by rank"},
		{Name: "PADDLE_CURRENT_ENDPOINT", Value: p.endpoint(p.Group, local), Why: "where this one does"},
	}
}

func paddleTrainer(p Place, local int) job.Env {
	rank := strconv.Itoa(p.World.Members[p.Group].First + local)
	return append(append(paddleWorkers(p, local), paddleRole(p, local, "TRAINER")...), job.Var{Name: "PADDLE_TRAINER_ID", Value: rank, Why: "which of those who train this is"})
}

func paddleServer(p Place, local int) job.Env {
	return append(paddleWorkers(p, local), paddleRole(p, local, "PSERVER")...)
}

// paddleGloo is where the first server has trainers meet over HTTP, if the user or the platform asks for that (PADDLE_WITH_GLOO). Paddle gives up where
// the name that they gave is not known yet, or is another server's.
func paddleGloo(p Place, given func(string) (string, bool)) job.Env {
	asked, _ := given("PADDLE_GLOO_HTTP_ENDPOINT")
	_, port, err := net.SplitHostPort(asked)
	if p.Servers == 0 || err != nil {
		return nil
	}
	return job.Env{{Name: "PADDLE_GLOO_HTTP_ENDPOINT", Value: net.JoinHostPort(p.Hosts[p.trainers()], port), Why: "the first parameter server, by its address; the port is as it was"}}
}

// paddleRole is the contract of a worker where some are parameter servers, which find themselves in their list by address and port.
func paddleRole(p Place, local int, role string) job.Env {
	port := strconv.Itoa(p.World.Members[p.Group].Ports[local])
	return job.Env{
		{Name: "TRAINING_ROLE", Value: role, Why: "the last nodes are parameter servers, the others train"},
		{Name: "PADDLE_TRAINING_ROLE", Value: role, Why: "the same"},
		{Name: "POD_IP", Value: strings.TrimSuffix(p.endpoint(p.Group, local), ":"+port), Why: "this node, as the lists name it"},
		{Name: "PADDLE_PORT", Value: port, Why: "where this worker listens"},
	}
}

// paddleDevice says on what a worker computes.
func paddleDevice(p Place, local int) job.Env {
	if ids := p.devices(local); ids != "" {
		return job.Env{{Name: "FLAGS_selected_gpus", Value: ids, Why: "this worker's GPUs, of those that it sees"}}
	}
	return job.Env{{Name: "PADDLE_DISTRI_BACKEND", Value: "gloo", Why: "there is no GPU: else Paddle would look for one, or meet in an older way"}}
}
