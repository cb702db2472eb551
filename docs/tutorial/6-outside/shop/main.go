// Command shop is something outside of the cluster, for step 6 of the tutorial: a service that is open or closed, and
// knows nothing of Kubernetes. It pushes each change to those who have subscribed.
//
//	shop serve            run the service at the address $SHOP
//	shop open             open it
//	shop close            close it
//	shop subscriptions    list the subscriptions
//	shop cut              cut the line to the subscribers: all pushes are lost
package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
)

func main() {
	address, command := os.Getenv("SHOP"), strings.Join(os.Args[1:], " ")
	if address == "" || command == "" {
		fmt.Println("give a command, such as open, and set SHOP to the address: `make tutorial` prints it")
		os.Exit(1)
	}
	if command == "serve" {
		s := &shop{state: "open", callbacks: map[string]string{}}
		fmt.Println(s.state)
		go func() { fmt.Println(http.ListenAndServe(address, s)) }()
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, os.Interrupt)
		<-stop
		return
	}
	answer, err := http.Post("http://"+address+"/"+command, "", nil)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	defer answer.Body.Close()
	_, _ = io.Copy(os.Stdout, answer.Body) // The worst case is an output that ends early.
}

type shop struct {
	mu        sync.Mutex
	state     string
	callbacks map[string]string // A URL for each subscriber.
	isCut     bool
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	command, subscriber, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch command {
	case "subscribe":
		callback, _ := io.ReadAll(r.Body) // If it ends early, the pushes are lost.
		if s.callbacks[subscriber] != string(callback) {
			s.callbacks[subscriber] = string(callback)
			fmt.Println("subscribed:", subscriber)
		}
		fmt.Fprint(w, s.state)
	case "unsubscribe":
		delete(s.callbacks, subscriber) // Without a subscription, this is no error: the request may be repeated.
		fmt.Println("unsubscribed:", subscriber)
	case "subscriptions":
		fmt.Fprintln(w, "subscriptions:", slices.Sorted(maps.Keys(s.callbacks)))
	case "cut":
		s.isCut = true
		fmt.Println("the line to the subscribers is cut")
	case "open":
		s.change("open")
	case "close":
		s.change("closed")
	default:
		http.NotFound(w, r)
	}
}

// change pushes the change once to each subscriber. A push that nobody receives is lost.
func (s *shop) change(state string) {
	s.state = state
	fmt.Println(state)
	for _, subscriber := range slices.Sorted(maps.Keys(s.callbacks)) {
		fmt.Println("push to", subscriber)
		go push(s.callbacks[subscriber]+subscriber, s.isCut)
	}
}

func push(callback string, isCut bool) {
	if isCut {
		callback = "nowhere"
	}
	answer, err := http.Post(callback, "", nil)
	if err != nil {
		fmt.Println("the push is lost")
		return
	}
	answer.Body.Close()
}
