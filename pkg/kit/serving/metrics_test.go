package serving

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// Tokens that the API server of the tests knows. Each belongs to a user of the same name.
const (
	reader   = "reader"   // May get /metrics.
	denied   = "denied"   // Must not get it, even if another rule permits it.
	stranger = "stranger" // No rule permits it.
)

// apiServer answers TokenReviews and SubjectAccessReviews.
type apiServer struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string       // A line for each review.
	broken   map[string]int // The code with which reviews of a resource are refused.
	once     bool           // Reviews of a resource are refused at most once.
	// withdrawn is a token that is not valid any more, changed a user whose permission is the opposite.
	withdrawn, changed string
	delay              time.Duration // Of each answer in inAccess,
	slow               string        // or only of those to reviews of a resource.
	response           string        // The last one to a reader of metrics in inAccess.
}

func newAPIServer(t *testing.T) *apiServer {
	api := &apiServer{broken: map[string]int{}}
	api.Server = httptest.NewServer(http.HandlerFunc(api.serve))
	t.Cleanup(api.Close)
	return api
}

func (api *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	api.mu.Lock()
	defer api.mu.Unlock()
	at := strings.LastIndex(r.URL.Path, "/")
	resource := r.URL.Path[at+1:]
	code := api.broken[resource]
	var answer any
	if api.once {
		api.broken[resource] = 0
	}
	switch {
	case code != 0:
		api.requests = append(api.requests, fmt.Sprint(resource, " ", code))
		answer = metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
			Code: int32(code), Message: resource + " cannot be created by the user foo-controller",
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
	case r.Method == http.MethodPost && r.URL.Path == "/apis/authentication.k8s.io/v1/tokenreviews":
		answer = api.reviewToken(r)
	case r.Method == http.MethodPost && r.URL.Path == "/apis/authorization.k8s.io/v1/subjectaccessreviews":
		answer = api.reviewAccess(r)
	default:
		api.requests = append(api.requests, r.Method+" "+r.URL.Path)
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// decode reads a body in any encoding of client-go. What it cannot read stays empty.
func decode(r *http.Request, review runtime.Object) {
	body, _ := io.ReadAll(r.Body)
	_, _, _ = scheme.Codecs.UniversalDeserializer().Decode(body, nil, review)
}

func (api *apiServer) reviewToken(r *http.Request) authenticationv1.TokenReview {
	var review authenticationv1.TokenReview
	decode(r, &review)
	api.requests = append(api.requests, "token "+review.Spec.Token)
	// A real API server reads the token as the header of a request.
	switch token, _, _ := strings.Cut(review.Spec.Token, " "); token {
	case "":
		review.Status.Authenticated = true
		review.Status.User = authenticationv1.UserInfo{Username: anonymous, Groups: []string{"system:unauthenticated"}}
	case reader, denied, stranger:
		review.Status.Authenticated = token != api.withdrawn
		review.Status.User = authenticationv1.UserInfo{Username: token, Groups: []string{"scrapers", "system:authenticated"}}
	case "expired": // As a real API server reports it.
		review.Status.Error = "[invalid bearer token, service account token has expired]"
	}
	return review
}

func (api *apiServer) reviewAccess(r *http.Request) authorizationv1.SubjectAccessReview {
	var review authorizationv1.SubjectAccessReview
	decode(r, &review)
	spec := review.Spec
	if asked := spec.NonResourceAttributes; asked != nil {
		api.requests = append(api.requests, fmt.Sprint("access ", spec.User, spec.Groups, " ", asked.Path, " ", asked.Verb))
	}
	review.Status.Allowed = spec.User == anonymous || (spec.User == reader) != (spec.User == api.changed)
	review.Status.Denied = spec.User == denied
	return review
}

// reviews returns the requests since the last call.
func (api *apiServer) reviews() []string {
	api.mu.Lock()
	defer api.mu.Unlock()
	requests := api.requests
	api.requests = nil
	return requests
}

// metricsHandler has the content of the endpoint, and fails the test if it sees a token.
func metricsHandler(t *testing.T) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token := r.Header.Get("Authorization"); token != "" {
			t.Errorf("the handler gets the token %q", token)
		}
		_, _ = io.WriteString(w, "foo_sync_total 1\n")
	})
}

// startMetrics starts an endpoint.
func startMetrics(t *testing.T, api *apiServer) (url string) {
	t.Helper()
	server, err := NewMetrics(t.Context(), MetricsConfig{
		Address: anyPort, Handler: metricsHandler(t),
		API: &rest.Config{Host: api.URL, QPS: 0.001, Burst: 1}, // One review in 17 minutes, if the rate limit were used.
	})
	return start(t, server, err) + metricsPath
}

func TestMetricsNeedATokenAndAPermission(t *testing.T) {
	api := newAPIServer(t)
	url := startMetrics(t, api)
	const forbidden = "403 user %q may not get /metrics; a ClusterRole with nonResourceURLs: [\"/metrics\"] and verbs: " +
		"[get] would permit it\n"
	const sendToken = "401 send a valid token of this cluster in the header Authorization: Bearer TOKEN\n"
	for _, tc := range []struct {
		name, token string
		want        string
		reviews     []string
	}{
		{"anonymous", "", sendToken, nil},
		{"an unknown token", "unknown", sendToken, []string{"token unknown"}},
		{"an expired token, which the API server explains", "expired", sendToken, []string{"token expired"}},
		{"the same again: an explained refusal is not in the cache", "expired", sendToken, []string{"token expired"}},
		{
			"no permission", stranger,
			fmt.Sprintf(forbidden, stranger),
			[]string{"token stranger", "access stranger[scrapers system:authenticated] /metrics get"},
		},
		{
			"explicitly denied", denied,
			fmt.Sprintf(forbidden, denied),
			[]string{"token denied", "access denied[scrapers system:authenticated] /metrics get"},
		},
		{
			"permitted", reader, "200 foo_sync_total 1\n",
			[]string{"token reader", "access reader[scrapers system:authenticated] /metrics get"},
		},
		{"permitted again: both answers are in the caches", reader, "200 foo_sync_total 1\n", nil},
		{"refused again: both answers are in the caches", stranger, fmt.Sprintf(forbidden, stranger), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			resp, body := send(t, newClient(t), http.MethodGet, url, tc.token)
			if diff := cmp.Diff(tc.want, fmt.Sprint(resp.StatusCode, " ", body)); diff != "" {
				t.Errorf("wrong response (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.reviews, api.reviews()); diff != "" {
				t.Errorf("wrong reviews (-want +got):\n%s", diff)
			}
			asks := resp.Header.Get("WWW-Authenticate") == "Bearer"
			if asks != (resp.StatusCode == http.StatusUnauthorized) {
				t.Errorf("a response with %d asks for a token: %v", resp.StatusCode, asks)
			}
		})
	}
}

// The response has no error of a review, which may name the address of the API server.
func TestMetricsRefuseAllIfTheAPIServerDoesNotAnswer(t *testing.T) {
	for resource, what := range map[string]string{"tokenreviews": "token", "subjectaccessreviews": "permission"} {
		for _, code := range []int{http.StatusForbidden, http.StatusInternalServerError} {
			inAccess(t, func(api *apiServer, get func(string) int) {
				api.broken[resource] = code
				for authorization, want := range map[string]int{
					"Bearer " + reader: http.StatusInternalServerError, "Bearer " + stranger: http.StatusInternalServerError,
					"": http.StatusUnauthorized,
				} {
					if code := get(authorization); code != want {
						t.Errorf("%q gets %d, want %d", authorization, code, want)
					}
				}
				get("Bearer " + reader)
				if want := "cannot check the " + what + "; the log of the controller has the reason\n"; api.response != want {
					t.Errorf("the response is %q, want %q", api.response, want)
				}
				api.broken[resource] = 0 // A failure is not kept in a cache.
				if code := get("Bearer " + reader); code != http.StatusOK {
					t.Errorf("when the API server answers again, the reader gets %d", code)
				}
			})
		}
	}
}

func TestMetricsAreTheOnlyPathAndOnlyRead(t *testing.T) {
	api := newAPIServer(t)
	url := startMetrics(t, api)
	base := strings.TrimSuffix(url, metricsPath)
	for _, tc := range []struct {
		method, url string
		want        int
	}{
		{http.MethodHead, url, http.StatusOK},
		{http.MethodPost, url, http.StatusMethodNotAllowed},
		{http.MethodGet, url + "/", http.StatusNotFound},
		{http.MethodGet, base + "/debug/pprof/", http.StatusNotFound},
		{http.MethodGet, base + "/healthz", http.StatusNotFound},
		{http.MethodGet, base + "/", http.StatusNotFound},
	} {
		if resp, _ := send(t, newClient(t), tc.method, tc.url, reader); resp.StatusCode != tc.want {
			t.Errorf("%s %s gets %d, want %d", tc.method, tc.url, resp.StatusCode, tc.want)
		}
	}
}

// A client that has only what the flags exclude gets no connection.
func TestServersLimitTLS(t *testing.T) {
	const suite, other = tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
	for _, tc := range []struct {
		limits TLS
		client *tls.Config
		served bool
	}{
		{limits: TLS{}, client: &tls.Config{MaxVersion: tls.VersionTLS11}},
		{limits: TLS{MinVersion: tls.VersionTLS13}, client: &tls.Config{MaxVersion: tls.VersionTLS12}},
		{
			limits: TLS{CipherSuites: []uint16{suite}},
			client: &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{other}},
		},
		{
			limits: TLS{CipherSuites: []uint16{suite}},
			client: &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{other, suite}}, served: true,
		},
	} {
		server, err := NewMetrics(t.Context(), MetricsConfig{
			Address: anyPort, Handler: metricsHandler(t), API: &rest.Config{Host: "localhost"}, TLS: tc.limits,
		})
		url := start(t, server, err)
		tc.client.InsecureSkipVerify = true
		conn, err := tls.Dial("tcp", strings.TrimPrefix(url, "https://"), tc.client)
		if (err == nil) != tc.served {
			t.Errorf("%+v: %v, served %t", tc.limits, err, tc.served)
		}
		if err == nil {
			conn.Close()
		}
	}
}

func TestPlainMetricsAreForLoopbackOnly(t *testing.T) {
	server, err := NewMetrics(t.Context(), MetricsConfig{Address: anyPort, Plain: true, Handler: metricsHandler(t)})
	url := start(t, server, err)
	if got, want := get(t, url+metricsPath), "200 foo_sync_total 1\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for want, config := range map[string]MetricsConfig{
		"can be reached from other machines":       {Address: ":8080", Plain: true},
		"metrics are plain and have a certificate": {Address: anyPort, Plain: true, CertFile: "tls.crt"},
		"give only one of the two":                 {Address: anyPort, Plain: true, KeyFile: "tls.key"},
	} {
		if _, err := NewMetrics(t.Context(), config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// inAccess calls test with a function that sends a request with a header Authorization, in virtual time. The client
// leaves after four seconds.
func inAccess(t *testing.T, test func(api *apiServer, get func(authorization string) (code int))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		api := &apiServer{broken: map[string]int{}}
		transport := roundTripper(func(r *http.Request) (*http.Response, error) {
			delay := api.delay
			if !strings.HasSuffix(r.URL.Path, api.slow) {
				delay = 0
			}
			select {
			case <-r.Context().Done():
				return nil, r.Context().Err()
			case <-time.After(delay):
			}
			recorder := httptest.NewRecorder()
			api.serve(recorder, r)
			return recorder.Result(), nil
		})
		config := &rest.Config{Host: "http://api.test", Transport: transport}
		handler, err := newAccess(klog.FromContext(t.Context()), config, metricsHandler(t))
		if err != nil {
			t.Fatal(err)
		}
		if config.QPS != 0 {
			t.Errorf("the caller's config was changed: %v", config)
		}
		test(api, func(authorization string) int {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			req := httptest.NewRequestWithContext(ctx, http.MethodGet, metricsPath, nil)
			req.Header.Set("Authorization", authorization)
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, req)
			api.response = recorder.Body.String()
			return recorder.Code
		})
	})
}

func TestAnAnswerIsReusedForItsTime(t *testing.T) {
	for _, tc := range []struct {
		name       string
		token      string
		change     func(*apiServer)
		before     int
		lasts      time.Duration
		afterwards int
	}{
		{
			name: "a token that is withdrawn", token: reader, before: http.StatusOK,
			change: func(api *apiServer) { api.withdrawn = reader }, lasts: time.Minute, afterwards: http.StatusUnauthorized,
		},
		{
			name: "a permission that is withdrawn", token: reader, before: http.StatusOK,
			change: func(api *apiServer) { api.changed = reader }, lasts: 5 * time.Minute, afterwards: http.StatusForbidden,
		},
		{
			name: "a permission that is given", token: stranger, before: http.StatusForbidden,
			change: func(api *apiServer) { api.changed = stranger }, lasts: 30 * time.Second, afterwards: http.StatusOK,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inAccess(t, func(api *apiServer, get func(string) int) {
				expect := func(when string, want int) {
					t.Helper()
					if code := get("Bearer " + tc.token); code != want {
						t.Errorf("%s: %d, want %d", when, code, want)
					}
				}
				expect("before", tc.before)
				tc.change(api)
				time.Sleep(tc.lasts - time.Second)
				expect("a second before the answer is forgotten", tc.before)
				time.Sleep(2 * time.Second)
				expect("a second after", tc.afterwards)
			})
		})
	}
}

func TestAReviewIsRepeatedWhole(t *testing.T) {
	for _, resource := range []string{"tokenreviews", "subjectaccessreviews"} {
		inAccess(t, func(api *apiServer, get func(string) int) {
			api.broken[resource], api.once = http.StatusInternalServerError, true
			if code := get("Bearer " + reader); code != http.StatusOK {
				t.Errorf("after one failure of %s: %d", resource, code)
			}
		})
	}
}

// Prometheus waits for 10 s. Until then it gets a response, also if the API server accepts reviews and never answers,
// or answers late with errors, after which it is asked again.
func TestMetricsAreRefusedInTimeIfTheAPIServerIsSlow(t *testing.T) {
	for _, delay := range []time.Duration{time.Hour, 3 * time.Second} {
		for _, resource := range []string{"tokenreviews", "subjectaccessreviews"} {
			inAccess(t, func(api *apiServer, get func(string) int) {
				api.delay, api.slow, api.broken[resource] = delay, resource, http.StatusInternalServerError
				began := time.Now()
				code := get("Bearer " + reader)
				took := time.Since(began)
				if code != http.StatusInternalServerError || took < 3*time.Second || took > 9*time.Second {
					t.Errorf("%s take %s: got %d after %s", resource, delay, code, took)
				}
			})
		}
	}
}

// Prometheus may have less patience than two reviews take.
func TestTheAnswerForAClientThatHasLeftIsKept(t *testing.T) {
	inAccess(t, func(api *apiServer, get func(string) int) {
		api.delay = 5 * time.Second
		if code := get("Bearer " + reader); code != http.StatusInternalServerError {
			t.Fatalf("two reviews within 8 s: %d", code)
		}
		if code := get("Bearer " + reader); code != http.StatusOK {
			t.Errorf("with the answer to the first of them: %d", code)
		}
	})
}

func TestSpellingsOfTheHeader(t *testing.T) {
	for header, want := range map[string]int{
		"Bearer " + reader: http.StatusOK, "bearer " + reader: http.StatusOK, " Bearer " + reader + " ": http.StatusOK,
		"Bearer": http.StatusUnauthorized, "Bearer ": http.StatusUnauthorized, reader: http.StatusUnauthorized,
		"Basic " + reader: http.StatusUnauthorized, "Bearer" + reader: http.StatusUnauthorized,
		"Bearer  " + reader: http.StatusUnauthorized, "Bearer " + reader + " x": http.StatusUnauthorized,
		"Bearer  x": http.StatusUnauthorized, "Bearer \u00a0": http.StatusUnauthorized,
	} {
		inAccess(t, func(_ *apiServer, get func(string) int) {
			if code := get(header); code != want {
				t.Errorf("%q: %d, want %d", header, code, want)
			}
		})
	}
}
