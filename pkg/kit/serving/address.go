package serving

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/cache"
)

// addressOf returns the IP address of a client. All clients whose address cannot be parsed are one.
func addressOf(hostPort string) netip.Addr {
	parsed, err := netip.ParseAddrPort(hostPort)
	if err != nil {
		return netip.Addr{}
	}
	return parsed.Addr().Unmap().WithZone("")
}

// fairListener closes a new connection at once if its address has the maximum of open ones, so that one client cannot
// use up what LimitListener accepts in all.
type fairListener struct {
	net.Listener
	max int // Connections of one address.

	mu   sync.Mutex
	open map[netip.Addr]int // No key has 0.
}

// Accept waits for a connection of an address that has fewer than the maximum.
func (l *fairListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := addressOf(conn.RemoteAddr().String())
		if l.take(from) {
			return &fairConn{Conn: conn, release: sync.OnceFunc(func() { l.release(from) })}, nil
		}
		_ = conn.Close() // There is nothing to do about a connection that cannot be closed.
	}
}

// take reports whether one more connection of an address may be open, and counts it.
func (l *fairListener) take(from netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[from] >= l.max {
		return false
	}
	l.open[from]++
	return true
}

func (l *fairListener) release(from netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[from]--; l.open[from] == 0 {
		delete(l.open, from)
	}
}

// fairConn is a connection that fairListener counts until it is closed.
type fairConn struct {
	net.Conn
	release func()
}

func (c *fairConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// requestRates limits how often each client may ask for the metrics: an invalid token costs a review, and all clients
// share those. It remembers the addresses of some seconds, at most 1,024. A client with more of them than that is only
// stopped by the limit of reviews.
type requestRates struct {
	mu     sync.Mutex
	recent *cache.LRUExpireCache // The limiter of each address.
}

// How many requests one address may send, for a second and at once. Prometheus sends one in some seconds.
const (
	requestQPS   = 2
	requestBurst = 10
)

func newRequestRates() *requestRates { return &requestRates{recent: cache.NewLRUExpireCache(1024)} }

// allow reports whether a client may send a request now.
func (r *requestRates) allow(hostPort string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	from := addressOf(hostPort)
	limiter := rate.NewLimiter(requestQPS, requestBurst)
	if known, found := r.recent.Get(from); found {
		limiter = known.(*rate.Limiter)
	}
	const full = requestBurst / requestQPS * time.Second // After that, a limiter is as good as a new one.
	r.recent.Add(from, limiter, full)
	return limiter.Allow()
}
