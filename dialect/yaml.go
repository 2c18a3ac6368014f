package dialect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/muster-run/muster/lazy"
)

// A key is one of a configuration file, with what it holds.
type key struct {
	name string
	line int
	over int      // the line of one of the same name before it, which counts for nothing; 0: there is none
	text string   // a scalar, as Python's str() writes it
	none bool     // it is null
	list []string // a list of scalars; nil: it is none
	keys []key    // a map's; nil: it is none
}

// maxFile bounds a configuration file, in bytes.
const maxFile = 1 << 20

// readKeys parses a file that is a map, and whose values are scalars, lists of scalars, or maps of both. JSON is YAML,
// but for its tabs. Errors begin with the line where that is known.
func readKeys(data []byte, isJSON bool) ([]key, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("%d bytes are too many for a configuration: at most %d", len(data), maxFile)
	}
	if isJSON {
		if err := json.Unmarshal(data, new(map[string]any)); err != nil {
			return nil, jsonLine(data, err)
		}
		data = bytes.ReplaceAll(data, []byte("\t"), []byte(" "))
	}
	var doc, second yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&doc); err != nil && err != io.EOF {
		return nil, yamlLine(err)
	}
	if err := d.Decode(&second); err == nil {
		return nil, fmt.Errorf("line %d: a second document begins, and only one can be read", max(second.Line, 1))
	} else if err != io.EOF {
		return nil, yamlLine(err)
	}
	if len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("it holds no settings of the form NAME: VALUE")
	}
	return keysOf(doc.Content[0], true)
}

// yamlLine is what is wrong with YAML. Of the first line the parser does not say that it is that.
func yamlLine(err error) error {
	why := strings.TrimPrefix(err.Error(), "yaml: ")
	if !strings.HasPrefix(why, "line ") {
		why = "line 1: " + why
	}
	return errors.New(why)
}

// jsonLine says in which line JSON is broken.
func jsonLine(data []byte, err error) error {
	var at *json.SyntaxError
	if !errors.As(err, &at) {
		return err
	}
	return fmt.Errorf("line %d: %w", 1+bytes.Count(data[:at.Offset], []byte("\n")), err)
}

// keysOf are those of a map. Of one name the last one counts, in the place of the first, as Python has it.
func keysOf(n *yaml.Node, maps bool) ([]key, error) {
	keys, places := []key{}, map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := key{name: n.Content[i].Value, line: n.Content[i].Line}
		if err := k.hold(n.Content[i+1], maps); err != nil {
			return nil, fmt.Errorf("line %d: %s %w", k.line, k.name, err)
		}
		if at, before := places[k.name]; before {
			k.over = keys[at].line
			keys[at] = k
			continue
		}
		places[k.name] = len(keys)
		keys = append(keys, k)
	}
	return keys, nil
}

// hold takes up a value.
func (k *key) hold(n *yaml.Node, maps bool) (err error) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n.Style&yaml.TaggedStyle != 0 && !slices.Contains(strings.Fields("!!str !!int !!float !!bool !!null !!map !!seq"), n.ShortTag()):
		return fmt.Errorf("has the tag %s, which is no setting's", n.ShortTag())
	case n.Kind == yaml.ScalarNode:
		k.text, k.none = scalar(n)
	case n.Kind == yaml.MappingNode && maps:
		k.keys, err = keysOf(n, false)
	case n.Kind == yaml.SequenceNode:
		k.list, err = scalars(n)
	default:
		return errors.New("holds more than a value, a list or a map of them")
	}
	return err
}

func scalars(n *yaml.Node) ([]string, error) {
	list := []string{}
	for _, item := range n.Content {
		if item.Kind != yaml.ScalarNode {
			return nil, errors.New("holds more than a list of values")
		}
		text, _ := scalar(item)
		list = append(list, text)
	}
	return list, nil
}

// Python's YAML is version 1.1 (yaml/resolver.py): what these match is no text unless it is quoted.
var (
	yamlTrue  = lazy.Regexp(`^(?:yes|Yes|YES|true|True|TRUE|on|On|ON)$`)
	yamlFalse = lazy.Regexp(`^(?:no|No|NO|false|False|FALSE|off|Off|OFF)$`)
	yamlNull  = lazy.Regexp(`^(?:~|null|Null|NULL|)$`)
	yamlInt   = lazy.Regexp(`^[-+]?(?:0b[0-1_]+|0[0-7_]*|[1-9][0-9_]*|0x[0-9a-fA-F_]+)$`)
	yamlFloat = lazy.Regexp(`^(?:[-+]?[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+][0-9]+)?$`)
)

// scalar is what Python's str() writes for a value, or that it is null.
func scalar(n *yaml.Node) (text string, none bool) {
	text = n.Value
	plain := n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) == 0
	switch {
	case !plain:
		return text, false
	case yamlTrue().MatchString(text), yamlFalse().MatchString(text):
		return boolText(yamlTrue().MatchString(text)), false
	case yamlNull().MatchString(text):
		return "", true
	case yamlInt().MatchString(text):
		if i, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 0, 64); err == nil {
			return strconv.FormatInt(i, 10), false
		}
	case yamlFloat().MatchString(text):
		if f, err := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64); err == nil {
			return floatText(f), false
		}
	}
	return text, false
}
