package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Foo names a Deployment. The controller creates it in the Foo's namespace, keeps it as the Foo
// says, and reports in status what became of it. When the Foo is deleted, so is its Deployment.
//
// +genclient
// +genclient:method=GetScale,verb=get,subresource=scale,result=k8s.io/api/autoscaling/v1.Scale
// +genclient:method=UpdateScale,verb=update,subresource=scale,input=k8s.io/api/autoscaling/v1.Scale,result=k8s.io/api/autoscaling/v1.Scale
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=foos,singular=foo,scope=Namespaced,categories=samples
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:selectablefield:JSONPath=`.spec.deploymentName`
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=unapproved, a sample for learning; copies should move to a group of their own"
// +kubebuilder:printcolumn:name="Deployment",type=string,JSONPath=`.spec.deploymentName`,description="Name of the Deployment this Foo asks for"
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`,description="Replicas this Foo asks for; empty when it leaves them to others"
// +kubebuilder:printcolumn:name="Current",type=integer,JSONPath=`.status.replicas`,description="Pods the Deployment has"
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=`.status.availableReplicas`,description="Pods the Deployment reports as available"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the Deployment is as the Foo says and available"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1,description="Why Ready is what it is"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="has(self.spec) || (oldSelf.hasValue() && !has(oldSelf.value().spec))",optionalOldSelf=true,fieldPath=".spec",message="set at least spec.deploymentName, the name of the Deployment to create",reason=FieldValueRequired
type Foo struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what you want: the Deployment's name, and those of its fields that the Foo shall keep.
	// It is required of every new Foo.
	// +optional
	Spec FooSpec `json:"spec,omitzero"`
	// status is what the controller last saw and did. Only the controller writes it.
	// +optional
	// +kubebuilder:default:={}
	Status FooStatus `json:"status,omitzero"`
}

// FooSpec is what the user of a Foo wants. An optional field that is absent is not the Foo's: it
// gets a default when the Deployment is created and belongs to whoever sets it from then on.
type FooSpec struct {
	// deploymentName is the name of the Deployment that this Foo creates and keeps, in the Foo's own
	// namespace. A Deployment of that name which the Foo did not create is never touched. The name may be
	// changed: the Deployment of the new name is created first, and the old one deleted when the new one
	// has as many replicas available as it, or as are wanted.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="deploymentName must be a name that a Deployment can have: lowercase letters, digits, '-' and '.', beginning and ending with a letter or digit, for example \"web-1\""
	DeploymentName string `json:"deploymentName"`

	// replicas is the number of pods the Deployment is kept at, 0 or more. When absent, the Deployment
	// starts with 1, or with the old one's number when deploymentName was changed, and is then left at whatever
	// number it has, for instance to an autoscaler that targets the Deployment. An autoscaler that targets the Foo
	// needs it set.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`

	// image is the image the container "nginx" is kept at, 1 to 1024 characters without spaces. When
	// absent, the container starts with nginx:latest and is then left at whatever image it has.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'[\s\v\x{85}\pZ]')`,message="image must not contain spaces: give a reference such as \"nginx:1.29\""
	Image string `json:"image,omitempty"`

	// paused set to true makes the controller write nothing but this Foo's status, so that the
	// Deployment can be worked on by hand. Unset or false, it is put back as the Foo says.
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// FooStatus is what the controller last saw of the Deployment that the spec names, and what it makes
// of that.
type FooStatus struct {
	// observedGeneration is the metadata.generation of the Foo that this status speaks of. When it is
	// lower than metadata.generation, the controller has not yet looked at the newest spec.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// replicas is the number of pods the named Deployment has.
	// +optional
	Replicas int32 `json:"replicas"`

	// availableReplicas is the number of pods that the named Deployment reports as available.
	// +optional
	AvailableReplicas int32 `json:"availableReplicas"`

	// selector selects the named Deployment's pods, in the form that `kubectl get pods -l` takes.
	// Autoscalers that target the Foo read it.
	// +optional
	Selector string `json:"selector,omitempty"`

	// conditions say how the Foo is doing. Ready is always there. Reconciling is there, and True, while
	// the controller works or waits towards the spec; Stalled while only a change by somebody helps.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:default:={{type:"Ready",status:"Unknown",reason:"Pending",message:"No controller has seen this Foo yet. Is foo-controller running?",lastTransitionTime:"1970-01-01T00:00:00Z"}}
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// FooList is a list of Foos.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type FooList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	// items are the Foos.
	Items []Foo `json:"items"`
}
