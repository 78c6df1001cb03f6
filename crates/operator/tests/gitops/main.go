// Runs the Lua health check that the documentation gives for Argo CD, in the interpreter that Argo CD embeds. Reads {"lua", "objects"}
// and writes the health of each object.
package main

import (
	"encoding/json"
	"log"
	"os"

	lua "github.com/yuin/gopher-lua"
)

type question struct {
	Lua     string           `json:"lua"`
	Objects []map[string]any `json:"objects"`
}

type verdict struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

func main() {
	var asked question
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		log.Fatalf("cannot read the question: %v", err)
	}
	verdicts := make([]verdict, 0, len(asked.Objects))
	for _, object := range asked.Objects {
		health, message, err := argo(asked.Lua, object)
		if err != nil {
			log.Fatalf("health check: %v", err)
		}
		verdicts = append(verdicts, verdict{Status: health, Message: message})
	}
	if err := json.NewEncoder(os.Stdout).Encode(verdicts); err != nil {
		log.Fatal(err)
	}
}

// argo runs a health check as Argo CD does: the object is the global `obj`, and the script returns a table.
func argo(script string, object map[string]any) (string, string, error) {
	state := lua.NewState()
	defer state.Close()
	state.SetGlobal("obj", table(state, object))
	if err := state.DoString(script); err != nil {
		return "", "", err
	}
	health, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return "", "", nil
	}
	return health.RawGetString("status").String(), health.RawGetString("message").String(), nil
}

func table(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case map[string]any:
		result := state.NewTable()
		for name, member := range value {
			result.RawSetString(name, table(state, member))
		}
		return result
	case []any:
		result := state.NewTable()
		for _, member := range value {
			result.Append(table(state, member))
		}
		return result
	case string:
		return lua.LString(value)
	case float64:
		return lua.LNumber(value)
	case bool:
		return lua.LBool(value)
	default:
		return lua.LNil
	}
}
