//go:build ignore

// Fills in what Go's text/template makes of each vector: its output, or the class of its error.
//
//	go run generate.go < vectors.json > new.json && mv new.json vectors.json
//
// A new vector needs its data (the name of a member of "data") and its template; the rest is written here.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/template"
)

type vector struct {
	Data     string  `json:"data"`
	Template string  `json:"template"`
	Output   *string `json:"output,omitempty"`
	Error    string  `json:"error,omitempty"`
}

type file struct {
	Data    map[string]json.RawMessage `json:"data"`
	Vectors []vector                   `json:"vectors"`
}

// The functions that composite tools have besides those of text/template.
var functions = template.FuncMap{
	"json": func(value any) (string, error) {
		text, err := json.Marshal(value)
		return string(text), err
	},
	"quote": func(text string) string { return fmt.Sprintf("%q", text) },
	"fromJson": func(text string) (value any, err error) {
		if err = json.Unmarshal([]byte(text), &value); err != nil {
			err = fmt.Errorf("not JSON: %w", err)
		}
		return value, err
	},
}

// Parts of Go's messages, and what the class of such an error is called here.
var classes = []struct{ part, class string }{
	{"not JSON", "not-json"},
	{"nil pointer evaluating", "nil-field"},
	{"can't evaluate field", "no-field"},
	{"is not a method but has arguments", "field-arguments"},
	{"can't give argument to non-function", "not-a-function"},
	{"nil is not a command", "nil-command"},
	{"overflows int", "overflow"},
	{"undefined variable", "variable"},
	{"not defined", "template"},
	{"wrong number of args", "arguments"},
	{"expected string", "not-a-string"},
	{"cannot assign nil to string", "not-a-string"},
	{"missing argument for comparison", "no-comparison"},
	{"incompatible types", "incompatible"},
	{"non-comparable types", "incompatible"},
	{"non-comparable type", "incomparable"},
	{"invalid type for comparison", "incomparable"},
	{"index of untyped nil", "no-parts"},
	{"index of nil pointer", "no-parts"},
	{"can't index item", "no-parts"},
	{"slice of untyped nil", "no-parts"},
	{"can't slice item", "no-parts"},
	{"len of", "no-parts"},
	{"reflect.Value.Type on zero Value", "no-parts"},
	{"cannot index slice/array with", "index-type"},
	{"should be string", "index-type"},
	{"should be of type string", "index-type"},
	{"index out of range", "index-range"},
	{"invalid slice index", "slice-bounds"},
	{"too many slice indexes", "slice-bounds"},
	{"cannot 3-index slice", "slice-bounds"},
	{"range can't iterate over", "range"},
	{"to iterate over more than one variable", "range-variables"},
	{"call of nil", "call"},
	{"non-function", "call"},
	{"exceeded maximum template depth", "calls"},
}

func main() {
	var all file
	decoder := json.NewDecoder(os.Stdin)
	decoder.DisallowUnknownFields()
	check(decoder.Decode(&all))
	for index := range all.Vectors {
		fill(&all.Vectors[index], all.Data)
	}
	write(all)
}

func fill(one *vector, data map[string]json.RawMessage) {
	one.Output, one.Error = nil, ""
	raw, known := data[one.Data]
	if !known {
		check(fmt.Errorf("there is no data %q", one.Data))
	}
	var value any
	check(json.Unmarshal(raw, &value))
	parsed, err := template.New("expand").Funcs(functions).Parse(one.Template)
	if err != nil {
		one.Error = "parse"
		return
	}
	var output bytes.Buffer
	if err := parsed.Execute(&output, value); err != nil {
		one.Error = class(err.Error())
		return
	}
	text := output.String()
	one.Output = &text
}

func class(message string) string {
	for _, known := range classes {
		if strings.Contains(message, known.part) {
			return known.class
		}
	}
	check(fmt.Errorf("no class for: %s", message))
	return ""
}

// One line for each data and each vector.
func write(all file) {
	names := make([]string, 0, len(all.Data))
	for name := range all.Data {
		names = append(names, name)
	}
	// Maps are encoded in the order of their keys.
	sorted, err := json.Marshal(all.Data)
	check(err)
	decoder := json.NewDecoder(bytes.NewReader(sorted))
	_, err = decoder.Token()
	check(err)
	fmt.Println("{\n\"data\": {")
	for index := range names {
		name, err := decoder.Token()
		check(err)
		var value json.RawMessage
		check(decoder.Decode(&value))
		fmt.Printf("%s: %s%s\n", line(name), value, comma(index, len(names)))
	}
	fmt.Println("},\n\"vectors\": [")
	for index, one := range all.Vectors {
		fmt.Printf("%s%s\n", line(one), comma(index, len(all.Vectors)))
	}
	fmt.Println("]\n}")
}

func line(value any) string {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	check(encoder.Encode(value))
	return strings.TrimSpace(text.String())
}

func comma(index, length int) string {
	if index+1 < length {
		return ","
	}
	return ""
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
