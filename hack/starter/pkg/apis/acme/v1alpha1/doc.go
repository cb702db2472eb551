// Package v1alpha1 is the API of the group acme.example.com: the kind Widget, its fields with their rules, and the
// reasons of its conditions.
//
// `make generate` makes the rest of these types: deep copies and the registration in a scheme beside them, the
// CustomResourceDefinition in artifacts/crd, and clients, listers and informers in pkg/generated.
//
// +k8s:deepcopy-gen=package
// +kubebuilder:ac:generate=true
// +kubebuilder:ac:output:package=../../../generated/applyconfiguration
// +groupName=acme.example.com
// +groupGoName=Acme
package v1alpha1
