// Package state compares the state of an object with the wanted one, and reports it.
//
// [Drift] compares an object with the fields that a controller wants it to have, and makes the patch that corrects it.
// All other fields are neither compared nor part of the patch: those that the API server has defaulted, and those of an
// autoscaler, a webhook or a user.
//
// [Conditions] sets the conditions from which tools such as kstatus, Argo CD and `kubectl wait` read the state of an
// object of any kind. Ready is always there. Reconciling and Stalled are there only while they are True.
//
// Both are pure: they send nothing, and the time is an argument.
package state
