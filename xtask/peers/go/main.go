// Command peer is an MCP server on the official Go SDK: `peer stdio`, `peer sse` or `peer streamable`, the latter two on
// the port that PORT names. It is a client as well: `peer client URL auto|legacy TOOL`.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type input struct {
	Message string `json:"message" jsonschema:"the message to echo"`
}

func echo(_ context.Context, _ *mcp.CallToolRequest, in input) (*mcp.CallToolResult, any, error) {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Message}}}, nil, nil
}

func ask(ctx context.Context, request *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
	name := &jsonschema.Schema{Type: "string"}
	schema := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{"name": name}}
	answer, err := request.Session.Elicit(ctx, &mcp.ElicitParams{Message: "Who are you?", RequestedSchema: schema})
	if err != nil {
		return nil, nil, err
	}
	text := answer.Action
	if given, ok := answer.Content["name"].(string); ok {
		text = given
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
}

func tell(ctx context.Context, request *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
	for number := range 3 {
		line := &mcp.LoggingMessageParams{Level: "info", Data: fmt.Sprintf("line %d", number)}
		if err := request.Session.Log(ctx, line); err != nil {
			return nil, nil, err
		}
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil, nil
}

func main() {
	if len(os.Args) == 5 && os.Args[1] == "client" {
		if err := call(os.Args[2], os.Args[3], os.Args[4]); err != nil {
			log.Fatal(err)
		}
		return
	}
	if len(os.Args) != 2 {
		log.Fatal("use: peer stdio | sse | streamable | client URL auto|legacy TOOL")
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "peer", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "echo", Description: "Echoes the message"}, echo)
	mcp.AddTool(server, &mcp.Tool{Name: "ask", Description: "Asks for a name"}, ask)
	mcp.AddTool(server, &mcp.Tool{Name: "log", Description: "Logs three lines"}, tell)
	choose := func(*http.Request) *mcp.Server { return server }
	address := "127.0.0.1:" + os.Getenv("PORT")
	switch os.Args[1] {
	case "stdio":
		if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
			log.Fatal(err)
		}
	case "sse":
		log.Fatal(http.ListenAndServe(address, mcp.NewSSEHandler(choose, nil)))
	case "streamable":
		log.Fatal(http.ListenAndServe(address, mcp.NewStreamableHTTPHandler(choose, nil)))
	default:
		log.Fatalf("no transport %q; use stdio, sse or streamable", os.Args[1])
	}
}
