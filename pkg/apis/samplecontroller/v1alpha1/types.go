package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Foo names a Deployment. The controller creates it in the Foo's namespace,
// keeps the fields that the Foo sets, and reports the result in status.
// When the Foo is deleted, its Deployment is deleted too.
//
// +genclient
// +genclient:method=GetScale,verb=get,subresource=scale,result=k8s.io/api/autoscaling/v1.Scale
// +genclient:method=UpdateScale,verb=update,subresource=scale,input=k8s.io/api/autoscaling/v1.Scale,result=k8s.io/api/autoscaling/v1.Scale
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=foos,singular=foo,scope=Namespaced,shortName=fo
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:selectablefield:JSONPath=`.spec.deploymentName`
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=unapproved; the kind keeps the group of Kubernetes' sample-controller, with whose objects it is compatible"
// +kubebuilder:metadata:annotations="argocd.argoproj.io/sync-options=Prune=false,Delete=false"
// +kubebuilder:metadata:annotations="kustomize.toolkit.fluxcd.io/prune=disabled"
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:printcolumn:name="Deployment",type=string,JSONPath=`.spec.deploymentName`,description="Name of the Deployment this Foo asks for"
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`,description="Replicas this Foo asks for; empty when it leaves them to others"
// +kubebuilder:printcolumn:name="Current",type=integer,JSONPath=`.status.replicas`,description="Pods the Deployment has"
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=`.status.availableReplicas`,description="Pods the Deployment reports as available"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the Deployment is as specified and available"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why Ready is what it is"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="has(self.spec) || (oldSelf.hasValue() && !has(oldSelf.value().spec))",optionalOldSelf=true,fieldPath=".spec",message="set at least spec.deploymentName, the name of the Deployment to create",reason=FieldValueRequired
type Foo struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what you want: the name of the Deployment, and the fields of it
	// that the Foo keeps. Every new Foo needs it.
	// +optional
	Spec FooSpec `json:"spec,omitzero"`
	// status is what the controller last observed and did. Only the controller
	// writes it.
	// +optional
	// +kubebuilder:default:={}
	Status FooStatus `json:"status,omitzero"`

	// Unread has the stored fields that UnmarshalJSON could not decode, in the
	// order of the Go fields. This Foo lacks them. Unread is never sent.
	Unread []UnreadField `json:"-"`
}

// FooSpec is what you want. A field that you leave out gets a default when
// the Deployment is created. After that another client, for example an
// autoscaler, may set it on the Deployment.
type FooSpec struct {
	// deploymentName is the name of the Deployment that this Foo creates and
	// keeps, in the Foo's own namespace. An existing Deployment of that name
	// that this Foo does not control is never changed.
	//
	// You may change the name. The Deployment of the new name is created first.
	// The previous one keeps serving, and is deleted when the new one has at
	// least one replica of its current pod template available, and as many as
	// replicas asks for, or as the previous one is set to if that is less or
	// replicas is absent. None are needed if replicas is 0.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="deploymentName must be a name that a Deployment can have: lowercase letters, digits, '-' and '.', beginning and ending with a letter or digit, for example \"web-1\""
	DeploymentName string `json:"deploymentName"`

	// replicas is the number of pods that the Deployment is kept at, 0 or more.
	//
	// If you leave it out, the Deployment starts with 1, or after a change of
	// deploymentName with the number of the previous one. It is then free to
	// change, for example by an autoscaler that targets the Deployment. Set it
	// for an autoscaler that targets the Foo.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`

	// image is the image that the container "nginx" is kept at: 1 to 1024
	// characters without spaces.
	//
	// If you leave it out, the container starts with nginx:latest. The image is
	// then free to change on the Deployment.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'[\s\v\x{85}\pZ]')`,message="image must not contain spaces: give a reference such as \"nginx:1.29\""
	Image string `json:"image,omitempty"`

	// paused stops the controller from creating, changing or deleting a
	// Deployment for this Foo while it is true, so that you can work on the
	// Deployment by hand. Only the Foo's status is written. When it is false
	// again, the fields that the Foo sets are corrected.
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// FooStatus is what the controller last observed of the Deployment that the
// spec names, and what follows from that.
type FooStatus struct {
	// observedGeneration is the metadata.generation of the Foo that this status
	// is about. While it is lower than metadata.generation, the controller has
	// not seen the newest spec.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// replicas is the number of pods the named Deployment has.
	// +optional
	Replicas int32 `json:"replicas"`

	// availableReplicas is the number of available pods of the named Deployment.
	// +optional
	AvailableReplicas int32 `json:"availableReplicas"`

	// selector selects the pods of the named Deployment, in the form that
	// "kubectl get pods -l" takes. Autoscalers that target the Foo read it.
	// +optional
	Selector string `json:"selector,omitempty"`

	// conditions are the state of the Foo. Ready is always there. Reconciling
	// is there, and True, while the controller works or waits. Stalled is there,
	// and True, while only a change by somebody helps. The message has what is
	// wrong and what to do.
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
