// Package schemas holds the manifests of the examples against the schemas that the operators publish: fields, types and rules, as
// Kubernetes' API server would before it takes them. It is a module of its own, so that muster's has nothing of Kubernetes'.
package schemas
