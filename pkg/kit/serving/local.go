package serving

import (
	"net"
	"net/http"
)

// localOnly passes on requests whose Host header names this machine by localhost or a loopback address. A loopback
// address alone keeps other machines out, but not a web page in a browser on this machine: its author can let a name of
// their own resolve to 127.0.0.1 (DNS rebinding), and the page could read the responses. Its requests have that name.
func localOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host // Without a port.
		}
		if host != "localhost" && !net.ParseIP(host).IsLoopback() {
			respond(w, http.StatusForbidden, "use localhost or a loopback address in the URL\n")
			return
		}
		next.ServeHTTP(w, r)
	})
}
