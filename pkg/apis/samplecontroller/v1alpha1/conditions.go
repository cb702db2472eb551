package v1alpha1

// Types of condition in a Foo's status.
const (
	// ConditionReady is True when the Deployment is as the Foo says and all its replicas are available;
	// of a paused Foo's Deployment, and of one that something else keeps changing, only whether they are
	// available is looked at. The condition is always
	// present; before the controller has looked it is Unknown with reason ReasonPending.
	ConditionReady = "Ready"
	// ConditionReconciling is present, and True, while the controller works or waits towards the spec.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is present, and True, while nothing moves until somebody changes something.
	ConditionStalled = "Stalled"
)

// Reasons of a Foo's conditions. docs/operations.md says of each what causes it and what to do.
const (
	// ReasonPending is the default of a new Foo: no controller has looked at it yet.
	ReasonPending = "Pending"
	// ReasonPaused means that spec.paused is true: nothing is written but this status.
	ReasonPaused = "Paused"
	// ReasonInvalid means that the stored spec breaks a rule that was made after it was stored.
	ReasonInvalid = "Invalid"
	// ReasonCreating means that the Deployment does not exist yet or has just been created.
	ReasonCreating = "Creating"
	// ReasonWaitingForDeletion means that the named Deployment is being deleted and comes back after.
	ReasonWaitingForDeletion = "WaitingForDeletion"
	// ReasonWaitingForName means that the named Deployment belongs to another Foo, which is leaving it: that
	// Foo moves to another name, is being deleted, or is gone already.
	ReasonWaitingForName = "WaitingForName"
	// ReasonNameTaken means that the name belongs to another Foo, which claims it too: it has the Deployment,
	// or is older and gets it.
	ReasonNameTaken = "NameTaken"
	// ReasonNameCycle means that Foos want each other's Deployments, so that none of them can move.
	ReasonNameCycle = "NameCycle"
	// ReasonNotOwned means that the named Deployment is none that a Foo would give up, and is therefore left alone.
	ReasonNotOwned = "NotOwned"
	// ReasonRefused means that the API server refused or failed to create or change the Deployment; the message has
	// its words.
	ReasonRefused = "Refused"
	// ReasonFieldsOverridden means that something else keeps changing fields of the Deployment that this Foo sets.
	ReasonFieldsOverridden = "FieldsOverridden"
	// ReasonProgressing means that replicas are still coming up or going down.
	ReasonProgressing = "Progressing"
	// ReasonRenaming means that spec.deploymentName was changed and the new Deployment is coming up, while the
	// previous one keeps serving.
	ReasonRenaming = "Renaming"
	// ReasonProgressDeadlineExceeded means that the Deployment gave up waiting for its rollout.
	ReasonProgressDeadlineExceeded = "ProgressDeadlineExceeded"
	// ReasonReplicaFailure means that the Deployment cannot create pods, or the ReplicaSet for them, for instance for
	// want of quota.
	ReasonReplicaFailure = "ReplicaFailure"
	// ReasonDeploymentPaused means that somebody set spec.paused on the Deployment.
	ReasonDeploymentPaused = "DeploymentPaused"
	// ReasonAvailable means that all wanted replicas are available.
	ReasonAvailable = "Available"
)

// Reasons of the events that the controller records for a Foo.
const (
	// EventSynced is the Normal event of a Foo whose Deployment became available: for a new generation, or
	// again after it was not.
	EventSynced = "Synced"
	// EventResourceExists is the Warning event of a Foo whose Deployment name belongs to somebody else.
	EventResourceExists = "ErrResourceExists"
	// EventFieldsOverridden is the Warning event of a Foo whose Deployment keeps being changed.
	EventFieldsOverridden = "FieldsOverridden"
	// EventStatusNotStored is the Warning event of a Foo whose status the API server does not store: the
	// CustomResourceDefinition is not the one that belongs to this controller.
	EventStatusNotStored = "StatusNotStored"
)

// Labels that the controller puts on a Foo's Deployment, and on its pods where that is said.
const (
	// LabelDeployment, on pods, is the name of the Deployment they belong to, shortened when too long.
	LabelDeployment = "samplecontroller.k8s.io/deployment"
	// LabelMadeFor is a hash of the Foo's uid and the Deployment's name: the controller made this
	// Deployment for this Foo under this name. A copy under another name does not match.
	LabelMadeFor = "samplecontroller.k8s.io/made-for"
	// LabelFooGeneration is the generation of the Foo that the Deployment was last written for.
	LabelFooGeneration = "samplecontroller.k8s.io/foo-generation"
)
