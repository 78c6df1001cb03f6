// The server behind the proxies of `cargo xtask bench proxy`: one tool, `bytes`, whose result is as long as it is asked for.
package main

import (
	"context"
	"encoding/json"
	"log"
	"net/http"
	"os"
	"strings"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var tool = &mcp.Tool{
	Name:        "bytes",
	Description: "As many bytes as asked for.",
	InputSchema: json.RawMessage(`{"type":"object","properties":{"size":{"type":"integer"}}}`),
}

func bytes(_ context.Context, request *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var wanted struct {
		Size int `json:"size"`
	}
	if err := json.Unmarshal(request.Params.Arguments, &wanted); err != nil {
		return nil, err
	}
	text := &mcp.TextContent{Text: strings.Repeat("x", wanted.Size)}
	return &mcp.CallToolResult{Content: []mcp.Content{text}}, nil
}

// A pipe that Go waits for with its poller, and not in read or write. With Go 1.26 (seen with 1.26.8), a collection that begins
// just as a thread begins to wait in such a call can hold the whole program for up to a minute, and with it the measurement.
func polled(pipe *os.File) *os.File {
	// A descriptor of its own: the one of the file is closed when the file has no reference any more.
	descriptor, err := syscall.Dup(int(pipe.Fd()))
	if err != nil {
		log.Fatal(err)
	}
	if err := syscall.SetNonblock(descriptor, true); err != nil {
		log.Fatal(err)
	}
	return os.NewFile(uintptr(descriptor), pipe.Name())
}

func main() {
	server := mcp.NewServer(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	server.AddTool(tool, bytes)
	if port := os.Getenv("MCP_PORT"); port != "" {
		handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
		log.Fatal(http.ListenAndServe("127.0.0.1:"+port, handler))
	}
	os.Stdin, os.Stdout = polled(os.Stdin), polled(os.Stdout)
	if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		log.Fatal(err)
	}
}
