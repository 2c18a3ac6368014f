package dialect

import (
	"fmt"
	"strconv"
	"strings"
)

// A writing is how Python's str() writes a value of a command line, once argparse made it one of a type.
type writing func(text string) (string, error)

// pyInt is int(text).
func pyInt(text string) (string, error) {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		return "", fmt.Errorf("%q is no whole number", text)
	}
	return strconv.Itoa(n), nil
}

// pyFloat is float(text).
func pyFloat(text string) (string, error) {
	f, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil {
		return "", fmt.Errorf("%q is no number", text)
	}
	return floatText(f), nil
}

// floatText is repr(f): the shortest text that means f, with an exponent from 1e16 on and below 1e-4.
func floatText(f float64) string {
	short := strconv.FormatFloat(f, 'e', -1, 64)
	_, exponent, finite := strings.Cut(short, "e")
	if !finite {
		return strings.ToLower(strings.TrimPrefix(short, "+"))
	}
	if e, _ := strconv.Atoi(exponent); e < -4 || e >= 16 {
		return short
	}
	short = strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(short, ".") {
		short += ".0"
	}
	return short
}

// pyBool is bool(text): every text but none is true, "False" as well.
func pyBool(text string) (string, error) { return boolText(text != ""), nil }

func boolText(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

// truth is what people write for true and false, and what accelerate and distutils understand.
func truth(text string) (value, ok bool) {
	switch strings.ToLower(text) {
	case "y", "yes", "t", "true", "on", "1":
		return true, true
	case "n", "no", "f", "false", "off", "0":
		return false, true
	}
	return false, false
}

// pyDigit is accelerate's str_to_bool(text).
func pyDigit(text string) (string, error) {
	value, ok := truth(text)
	switch {
	case !ok:
		return "", fmt.Errorf("%q is neither true nor false", text)
	case value:
		return "1", nil
	}
	return "0", nil
}

// pyDigits is str_to_bool of each of several.
func pyDigits(text string) (string, error) {
	words := strings.Split(text, ",")
	for i, word := range words {
		digit, err := pyDigit(word)
		if err != nil {
			return "", err
		}
		words[i] = digit
	}
	return strings.Join(words, ","), nil
}
