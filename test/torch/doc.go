// Package torch proves, with real PyTorch of five versions, that its workers, stores and launchers and ours understand
// each other.
package torch
