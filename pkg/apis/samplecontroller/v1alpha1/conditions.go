package v1alpha1

// Types of condition in a Foo's status.
const (
	// ConditionReady is True when the Deployment is as the Foo specifies and all its replicas are available. Of a
	// paused Foo's Deployment, and of one that something else keeps changing, it reports only whether they are
	// available. The condition is always present; before the controller has seen the Foo it is Unknown with reason
	// ReasonPending.
	ConditionReady = "Ready"
	// ConditionReconciling is present, and True, while the controller works or waits towards the spec.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is present, and True, while nothing moves until somebody changes something.
	ConditionStalled = "Stalled"
)

// Reasons of a Foo's conditions. docs/operations.md has what causes each of them and what to do.
const (
	// ReasonPending is the default of a new Foo: no controller has seen it yet.
	ReasonPending = "Pending"
	// ReasonPaused means that spec.paused is true: nothing is written but this status.
	ReasonPaused = "Paused"
	// ReasonInvalid means that the stored spec breaks a rule that was made after it was stored, or has a value that cannot
	// be read.
	ReasonInvalid = "Invalid"
	// ReasonCreating means that the Deployment does not exist yet or has just been created.
	ReasonCreating = "Creating"
	// ReasonWaitingForDeletion means that the named Deployment is being deleted and is created again afterwards.
	ReasonWaitingForDeletion = "WaitingForDeletion"
	// ReasonWaitingForName means that the named Deployment belongs to another Foo that is leaving it: that Foo names
	// another one now, is being deleted, or does not exist any more.
	ReasonWaitingForName = "WaitingForName"
	// ReasonNameTaken means that another Foo has the named Deployment, and keeps it.
	ReasonNameTaken = "NameTaken"
	// ReasonNameCycle means that two Foos name each other's Deployments, so that neither can move.
	ReasonNameCycle = "NameCycle"
	// ReasonNotOwned means that the named Deployment exists and no Foo controls it. It is not changed.
	ReasonNotOwned = "NotOwned"
	// ReasonRefused means that the API server refused to create or change the Deployment: a quota, a policy or a missing
	// permission. The message has the API server's own message.
	ReasonRefused = "Refused"
	// ReasonRequestFailed means that the API server failed or did not answer, so that the Deployment could not be created
	// or changed. Nothing in the Foo or its namespace is wrong.
	ReasonRequestFailed = "RequestFailed"
	// ReasonFieldsOverridden means that an admission policy or another client keeps changing fields of the Deployment
	// that this Foo sets.
	ReasonFieldsOverridden = "FieldsOverridden"
	// ReasonProgressing means that replicas are coming up or terminating.
	ReasonProgressing = "Progressing"
	// ReasonRenaming means that spec.deploymentName was changed, and the previous Deployment is kept: the new one is
	// coming up, or it is complete with fewer replicas than the previous one is set to.
	ReasonRenaming = "Renaming"
	// ReasonProgressDeadlineExceeded means that the rollout of the Deployment did not progress within its deadline.
	ReasonProgressDeadlineExceeded = "ProgressDeadlineExceeded"
	// ReasonReplicaFailure means that the Deployment cannot create pods, or the ReplicaSet for them, for example because
	// of a quota.
	ReasonReplicaFailure = "ReplicaFailure"
	// ReasonDeploymentPaused means that somebody set spec.paused on the Deployment.
	ReasonDeploymentPaused = "DeploymentPaused"
	// ReasonAvailable means that all wanted replicas are available.
	ReasonAvailable = "Available"
)

// Reasons of the events that the controller records for a Foo. A creation has no event. Equal events are counted in one
// object. The Foos of one namespace get at most 30 at once and one more a second.
const (
	// EventSynced is the Normal event of a Foo whose Deployment became available: for a new generation, or
	// again after it was not.
	EventSynced = "Synced"
	// EventCorrected is the Normal event of a Foo whose Deployment was changed by somebody and is again as the Foo
	// specifies. The note has the fields with both values.
	EventCorrected = "Corrected"
	// EventMoved is the Normal event of a Foo that has moved to another Deployment: the new one is available, and the
	// previous one was deleted.
	EventMoved = "Moved"
	// EventResourceExists is the Warning event of a Foo whose Deployment name belongs to somebody else.
	EventResourceExists = "ErrResourceExists"
	// EventRefused is the Warning event of a Foo whose Deployment the API server refuses to create, change or delete.
	EventRefused = "Refused"
	// EventRequestFailed is the Warning event of a Foo whose Deployment could not be created or changed, because the API
	// server failed or did not answer.
	EventRequestFailed = "RequestFailed"
	// EventReplicaFailure is the Warning event of a Foo whose Deployment cannot create pods, or the ReplicaSet for them.
	EventReplicaFailure = "ReplicaFailure"
	// EventProgressDeadlineExceeded is the Warning event of a Foo whose Deployment has exceeded its progress deadline.
	EventProgressDeadlineExceeded = "ProgressDeadlineExceeded"
	// EventDeploymentPaused is the Warning event of a Foo whose Deployment somebody has paused.
	EventDeploymentPaused = "DeploymentPaused"
	// EventFieldsOverridden is the Warning event of a Foo whose Deployment keeps being changed.
	EventFieldsOverridden = "FieldsOverridden"
)

// Labels that the controller sets: made-for and foo-generation on the Deployment, deployment on its pods.
const (
	// LabelDeployment, on pods, is the name of the Deployment they belong to, shortened when too long.
	LabelDeployment = "samplecontroller.k8s.io/deployment"
	// LabelMadeFor is a hash of the Foo's uid and the Deployment's name: the controller made this
	// Deployment for this Foo under this name. A copy under another name does not match.
	LabelMadeFor = "samplecontroller.k8s.io/made-for"
	// LabelFooGeneration is the generation of the Foo that the Deployment was last written for.
	LabelFooGeneration = "samplecontroller.k8s.io/foo-generation"
)

// ReadyReasons are all reasons of the condition Ready.
var ReadyReasons = []string{
	ReasonPending, ReasonPaused, ReasonInvalid, ReasonCreating, ReasonWaitingForDeletion, ReasonWaitingForName,
	ReasonNameTaken, ReasonNameCycle, ReasonNotOwned, ReasonRefused, ReasonRequestFailed, ReasonFieldsOverridden,
	ReasonProgressing, ReasonRenaming, ReasonProgressDeadlineExceeded, ReasonReplicaFailure, ReasonDeploymentPaused,
	ReasonAvailable,
}
