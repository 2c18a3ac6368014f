//go:build tools

// Package trainingoperator names programs, so that their modules have sums.
package trainingoperator

import (
	_ "github.com/kubeflow/training-operator/cmd/training-operator.v1"
)
