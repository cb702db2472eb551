package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"golang.org/x/sync/semaphore"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"example.com/foo-controller/pkg/kit/conversion"
)

const (
	// maxBody is how many bytes a review may have. The API server takes objects of 3 MiB at most, an admission review may
	// have two, and it mostly asks for the conversion of one object, also for a list.
	maxBody = 8 << 20
	// largeBody is what counts against maxLarge, the sum of large bodies that are in work: an answer needs several times
	// the memory of its review.
	largeBody, maxLarge = 256 << 10, 2 * maxBody
	// maxMessage is how many bytes the message of a failed conversion has.
	maxMessage = 4 << 10
)

// large is shared by all webhooks of the process.
var large = semaphore.NewWeighted(maxLarge)

// serve reads a review, and sends back what answer makes of it.
func serve[R any](w http.ResponseWriter, r *http.Request, answer func(review *R) error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "a webhook takes POST", http.StatusMethodNotAllowed)
		return
	}
	if size := r.ContentLength; size < 0 || size > largeBody {
		if size < 0 || size > maxBody {
			size = maxBody
		}
		if err := large.Acquire(r.Context(), size); err != nil {
			http.Error(w, "too many large reviews", http.StatusTooManyRequests)
			return
		}
		defer large.Release(size)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		http.Error(w, fmt.Sprintf("a review may have %d bytes", maxBody), http.StatusRequestEntityTooLarge)
		return
	}
	review := new(R)
	if err == nil {
		err = json.Unmarshal(body, review)
	}
	if err == nil {
		err = answer(review)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	_ = json.NewEncoder(w).Encode(review) // The client may have left.
}

// Convert serves a conversion: the handler answers a ConversionReview. If one object cannot be converted, the answer
// has no objects, and an error for each one that failed. It may be used concurrently.
func Convert(c *conversion.Conversion) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serve(w, r, func(review *apiextensionsv1.ConversionReview) error {
			request := review.Request
			if request == nil {
				return errors.New("there is no request in this ConversionReview")
			}
			review.Response, review.Request = converted(c, request), nil
			return nil
		})
	})
}

// converted converts all objects, or none: the API server takes no part of a list. The message has the error of each
// object that cannot be converted.
func converted(c *conversion.Conversion,
	request *apiextensionsv1.ConversionRequest) *apiextensionsv1.ConversionResponse {
	response := &apiextensionsv1.ConversionResponse{UID: request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	var failed []string
	for _, obj := range request.Objects {
		encoded, err := c.Convert(obj.Raw, request.DesiredAPIVersion)
		var panicked *conversion.PanicError
		if errors.As(err, &panicked) {
			klog.Background().Error(nil, "Conversion panicked", "object", nameOf(obj.Raw), "to", request.DesiredAPIVersion,
				"panic", panicked.Value, "stack", panicked.Stack)
		}
		if err != nil {
			failed = append(failed, nameOf(obj.Raw)+": "+err.Error())
			continue
		}
		response.ConvertedObjects = append(response.ConvertedObjects, runtime.RawExtension{Raw: encoded})
	}
	if len(failed) > 0 {
		message := strings.Join(failed, "; ")
		if len(message) > maxMessage {
			message = strings.ToValidUTF8(message[:maxMessage], "") + "..."
		}
		response.ConvertedObjects = nil
		response.Result = metav1.Status{Status: metav1.StatusFailure, Message: message}
	}
	return response
}

// nameOf returns the namespace and name of an object for people.
func nameOf(encoded []byte) string {
	obj := &metav1.PartialObjectMetadata{}
	_ = json.Unmarshal(encoded, obj) // Then it has no name.
	return strings.TrimPrefix(obj.Namespace+"/"+obj.Name, "/")
}
