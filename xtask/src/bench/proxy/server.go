// The server behind the proxies of `cargo xtask bench proxy`: one tool, `bytes`, whose result is as long as it is asked for.
package main

import (
	"context"
	"encoding/json"
	"log"
	"net/http"
	"os"
	"strings"

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

func main() {
	server := mcp.NewServer(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	server.AddTool(tool, bytes)
	if port := os.Getenv("MCP_PORT"); port != "" {
		handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
		log.Fatal(http.ListenAndServe("127.0.0.1:"+port, handler))
	}
	if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		log.Fatal(err)
	}
}
