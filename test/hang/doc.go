// Package hang lets real trainings hang, and looks as if they hung, under the real muster, and checks what that says and does.
//
// Each scene is a training of four ranks on two nodes (scripts/train.py: gloo on CPU, DDP or FSDP), which are network namespaces with
// a network for the agents and another for the data. At its moment a rank sleeps, spins, is stopped, waits for a dead file system,
// takes part in the wrong collective and so on. Of each fault muster must name the class, who is to blame and at which line, and
// then let the training begin again and come to its end; of what is healthy it must not say a word. Besides, a rank ends well before training has
// begun, and the others wait for it (scripts/leave.py).
//
// go test ./test/hang plays what is quick, and lets some of the jobs end for their hang; with -all every scene with PyTorch 1.13 and the newest, the
// latter with FSDP, too. It needs root, ip, nft and /dev/fuse. scripts/record.py plays a scene without muster, for the recordings in heartbeat/testdata/real.
package hang
