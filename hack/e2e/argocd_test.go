package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	luajson "layeh.com/gopher-json"
)

// scriptDeadline is the time limit of Argo CD for a health check.
const scriptDeadline = time.Second

// argoCD returns Argo CD with the health check of a file. The check runs as in Argo CD v3.6 (util/lua/lua.go, for a
// script in its ConfigMap without useOpenLibs): with a limit of a second, with Lua's basic functions and the library
// table, and without the libraries string and math. There are three differences: the check cannot use require, not even
// for os; it cannot read files; and an error in it is returned, where Argo CD reports Unknown.
func argoCD(file string) (tool, error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	chunk, err := parse.Parse(bytes.NewReader(source), file)
	if err != nil {
		return nil, err
	}
	script, err := lua.Compile(chunk, file)
	if err != nil {
		return nil, err
	}
	return func(obj *unstructured.Unstructured) (word, message string, err error) {
		health, err := runHealth(script, obj)
		if err != nil {
			return "", "", err
		}
		return healthOf(health)
	}, nil
}

// runHealth runs a health check on obj.
func runHealth(script *lua.FunctionProto, obj *unstructured.Unstructured) (lua.LValue, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	ctx, cancel := context.WithTimeout(context.Background(), scriptDeadline)
	defer cancel()
	state.SetContext(ctx)

	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		state.Push(state.NewFunction(open))
		state.Push(lua.LString(name))
		state.Call(1, 0)
	}
	for _, name := range []string{"dofile", "loadfile", "require"} { // They read files.
		state.SetGlobal(name, lua.LNil)
	}

	// Through JSON, so that all numbers become Lua numbers: luajson would convert an int64 to nil.
	encoded, err := obj.MarshalJSON()
	if err != nil {
		return nil, err
	}
	value, err := luajson.Decode(state, encoded)
	if err != nil {
		return nil, err
	}
	state.SetGlobal("obj", value)

	state.Push(state.NewFunctionFromProto(script))
	err = state.PCall(0, lua.MultRet, nil)
	var failure *lua.ApiError
	if errors.As(err, &failure) {
		failure.StackTrace = "" // It would include the Go code of the interpreter.
	}
	if err != nil {
		return nil, err
	}
	return state.Get(-1), nil
}

// healthOf decodes the result of a health check.
func healthOf(returned lua.LValue) (word, message string, err error) {
	table, ok := returned.(*lua.LTable)
	if !ok {
		return "", "", fmt.Errorf("the health check returned %s, not a table with status and message", returned.Type())
	}
	encoded, err := luajson.Encode(table)
	if err != nil {
		return "", "", fmt.Errorf("the result of the health check: %w", err)
	}
	var health struct{ Status, Message string }
	if err := json.Unmarshal(encoded, &health); err != nil {
		return "", "", fmt.Errorf("the result of the health check is not a status and a message: %w", err)
	}
	switch health.Status {
	case "Healthy", "Progressing", "Degraded", "Suspended", "Missing", "Unknown":
		return health.Status, health.Message, nil
	default: // This is the message of Argo CD.
		return "Unknown", "Lua returned an invalid health status", nil
	}
}
