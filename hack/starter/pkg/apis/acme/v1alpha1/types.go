package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Widget asks for pods that have a message: a ConfigMap with the message, and a Deployment whose pods mount it. Both
// have the name of the Widget, and are deleted with it.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=widgets,singular=widget,scope=Namespaced
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:selectablefield:JSONPath=`.spec.image`
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=`.status.availableReplicas`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="the name becomes a label of the pods: give one of at most 63 characters"
type Widget struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what you want.
	// +required
	Spec WidgetSpec `json:"spec"`
	// status is what the controller last observed. Only the controller writes it.
	// +optional
	// +kubebuilder:default:={}
	Status WidgetStatus `json:"status,omitzero"`
}

// WidgetSpec is what you want.
type WidgetSpec struct {
	// replicas is the number of pods. If you leave it out, the Deployment starts with 1, and somebody else, such as an
	// autoscaler of the Deployment, may set it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`

	// image is what the pods run.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'\s')`,message="image must not contain spaces"
	Image string `json:"image"`

	// message is the content of the file /etc/widget/message in the pods.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Message string `json:"message,omitempty"`
}

// WidgetStatus is what the controller last observed.
type WidgetStatus struct {
	// observedGeneration is the metadata.generation that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// replicas is the number of pods.
	// +optional
	Replicas int32 `json:"replicas"`
	// availableReplicas is the number of pods that are available.
	// +optional
	AvailableReplicas int32 `json:"availableReplicas"`
	// selector selects the pods, for autoscalers of the Widget.
	// +optional
	Selector string `json:"selector,omitempty"`
	// conditions are the state: Ready is always there, Reconciling and Stalled while they are True.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:default:={{type:"Ready",status:"Unknown",reason:"Pending",message:"No controller has seen this Widget yet. Is widget-controller running?",lastTransitionTime:"1970-01-01T00:00:00Z"}}
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// WidgetList is a list of Widgets.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type WidgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Widget `json:"items"`
}

// Reasons of the condition Ready.
const (
	ReasonPending       = "Pending"       // The default: no controller has seen it yet.
	ReasonAvailable     = "Available"     // All is as specified, and all pods are available.
	ReasonProgressing   = "Progressing"   // The Deployment is being rolled out.
	ReasonWaiting       = "Waiting"       // An object of that name is being deleted. Then it is created again.
	ReasonFailed        = "Failed"        // Pods cannot be created, or the rollout makes no progress.
	ReasonNotOwned      = "NotOwned"      // An object of that name belongs to somebody else.
	ReasonRefused       = "Refused"       // The API server refuses a write: a quota, a policy, a missing permission.
	ReasonRequestFailed = "RequestFailed" // The API server fails or does not answer, which may pass.
	ReasonOverridden    = "Overridden"    // Something changes a field on its way in, or undoes each write.
)
