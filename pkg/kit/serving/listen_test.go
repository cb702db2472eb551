package serving

import (
	"net"
	"strings"
	"testing"
)

func TestAddressesThatCannotBeUsedAreRefusedWithAdvice(t *testing.T) {
	taken, err := net.Listen("tcp", anyPort)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	address := taken.Addr().String()
	for _, tc := range []struct {
		name, address string
		onlyLoopback  bool
		want          string
	}{
		{
			"in use", address, false,
			`address "` + address + `" is in use; stop the process that has it, give another one, or 0 to turn ` +
				`the endpoint off: `,
		},
		{"a number", "8080", false, "address 8080: missing port in address; give HOST:PORT or :PORT, or 0 to turn "},
		{"nothing", "", false, "missing port in address; give HOST:PORT or :PORT, or 0 to turn the endpoint off"},
		{"no such port", "127.0.0.1:http-alternative", false, `address "127.0.0.1:http-alternative": `},
		{"another machine's address", "192.0.2.1:0", false, `address "192.0.2.1:0": `},
		{
			"all addresses, but only loopback is allowed", ":8080", true,
			`address ":8080" can be reached from other machines; give one such as 127.0.0.1:8080`,
		},
		{
			"all addresses in numbers, but only loopback is allowed", "0.0.0.0:8080", true,
			`address "0.0.0.0:8080" can be reached from other machines; give one such as 127.0.0.1:8080`,
		},
		{
			"all IPv6 addresses, but only loopback is allowed", "[::]:8080", true,
			`address "[::]:8080" can be reached from other machines; give one such as 127.0.0.1:8080`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			listener, err := listen(tc.address, tc.onlyLoopback)
			if err == nil {
				listener.Close()
				t.Fatalf("listens on %s", listener.Addr())
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error\n%s\nwant\n%s", err, tc.want)
			}
		})
	}
}

func TestLoopbackAddressesAreOpened(t *testing.T) {
	for _, address := range []string{anyPort, "localhost:0", "127.9.9.9:0"} {
		listener, err := listen(address, true)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		listener.Close()
		if !listener.Addr().(*net.TCPAddr).IP.IsLoopback() {
			t.Errorf("%s opens %s", address, listener.Addr())
		}
	}
}
