package serving

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// off is the address that turns an endpoint off, as the flags of controllers have it.
const off = "0"

// listen opens address, which is HOST:PORT or :PORT. With onlyLoopback it refuses an address that other machines or
// pods can reach. The host is resolved once, so that the address that is checked is the one that is opened.
func listen(address string, onlyLoopback bool) (net.Listener, error) {
	_, _, err := net.SplitHostPort(address) // ResolveTCPAddr accepts "" and means any port of all addresses.
	if err != nil {
		return nil, fmt.Errorf("%w; give HOST:PORT or :PORT, or 0 to turn the endpoint off", err)
	}
	resolved, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", address, err)
	}
	if onlyLoopback && !resolved.IP.IsLoopback() {
		return nil, fmt.Errorf("address %q can be reached from other machines; give one such as 127.0.0.1:%d",
			address, resolved.Port)
	}
	listener, err := net.ListenTCP("tcp", resolved)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("address %q is in use; stop the process that has it, give another one, or 0 to turn "+
			"the endpoint off: %w", address, err)
	}
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", address, err)
	}
	return listener, nil
}
