// Package chaos has accidents happen to a real training, one after the other, as a seed draws them, and holds what comes of it against
// the same training without any.
//
// A lap is one job: four hosts made of namespaces, the real muster on them, and real PyTorch under it (testdata/train.py, gloo on CPU, with
// a checkpoint every few steps). Each fault of the table (faults_test.go) says what must be told of it, and whether the same workers go on or
// all begin anew. When the training advances again the next one is drawn. In the end
//
//   - all nodes end with 0, and every worker has the parameters, bit for bit, of a training without faults, as had each checkpoint;
//   - no worker of an older round made a step when a newer one had begun, and there were no more rounds than faults that ask for one;
//   - each round's end stands in the verdict in the right words, and the journals, judged again, come to the same verdict byte for byte;
//   - no process, descriptor, temporary file, file in /dev/shm, namespace or rule of the network's is left.
//
// go test ./test/chaos plays one lap of a minute, with a seed that it prints. `make chaos` goes on until its log has an hour of them.
package chaos
