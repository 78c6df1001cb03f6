package main

import (
	"context"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func accept(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ann"}}, nil
}

// call connects in the era that the SDK prefers (`auto`) or in the legacy one, and calls a tool.
func call(url, mode, tool string) error {
	ctx := context.Background()
	client := mcp.NewClient(&mcp.Implementation{Name: "peer", Version: "1"}, &mcp.ClientOptions{ElicitationHandler: accept})
	options := &mcp.ClientSessionOptions{}
	if mode == "legacy" {
		options.ProtocolVersion = "2025-11-25"
	}
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url}, options)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer session.Close()
	arguments := map[string]any{}
	if tool == "echo" {
		arguments["message"] = "hello"
	}
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		return fmt.Errorf("call: %w", err)
	}
	wanted := map[string]string{"echo": "hello", "ask": "Ann", "log": "done"}[tool]
	if text, ok := result.Content[0].(*mcp.TextContent); !ok || result.IsError || text.Text != wanted {
		return fmt.Errorf("unexpected result: %+v", result.Content[0])
	}
	return nil
}
