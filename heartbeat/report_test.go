package heartbeat

import (
	"encoding/json"
	"reflect"
	"testing"
)

// A report as nodes write it is read by a shorter way than JSON, to the same, also after another one.
func TestReadReport(t *testing.T) {
	var u reader
	for _, r := range []Report{
		{Generation: 1}, {Generation: 3, Round: 7, Ranks: []byte{1, 2, 3, 255}, Ended: []int{8, 15}}, {Ended: []int{0}}, {Generation: -1, Ranks: make([]byte, 3000)},
	} {
		text, _ := json.Marshal(r)
		for _, text := range []string{string(text), `{"memory":17179869184,"limit":1,` + string(text[1:])} {
			if got, ok := u.plain([]byte(text)); !ok || !reflect.DeepEqual(got, r) {
				t.Errorf("%s: %+v, %v", text, got, ok)
			}
		}
	}
}

// What is written otherwise is read as JSON, or not at all.
func TestReadOtherReports(t *testing.T) {
	want := Report{Generation: 1, Ended: []int{2}}
	for _, text := range []string{
		`{"gen":1,"ended":[2],"more":{"gen":3}}`, `{"gen":1, "ended":[2]}`, `{"gen":1,"ended":[ 2 ]}`, `{"gen":1,"ended":[2],"more":"\""}`, `{"GEN":1,"ended":[2]}`,
		`{"gen":1,"ended":[2],"packed":null}`, ` {"gen":1,"ended":[2]}`, `{"g\u0065n":1,"ended":[2]}`, `{"gen":1,"ended":[2],"more":1.5}`,
	} {
		var u reader
		if _, ok := u.plain([]byte(text)); ok {
			t.Errorf("%s is taken for plain", text)
		}
		if got, ok := u.Read([]byte(text)); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", text, got, ok)
		}
	}
	for _, text := range []string{``, `{`, `}`, `{"gen"`, `{"gen":`, `{"gen":1`, `{"gen":1]`, `{"packed":"`, `{"packed":"AQ="}`, `{"ended":[1}`, `{"ended":[1,]}`, `{"gen":1}}`, `{"gen":1}{}`, `{"gen":,}`} {
		var u reader
		if got, ok := u.Read([]byte(text)); ok {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

func FuzzReadReport(f *testing.F) {
	f.Add([]byte(`{"memory":7,"gen":1,"round":2,"packed":"AQID","ended":[1,2]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var u reader
		var long Report
		short, ok := u.plain(text)
		if !ok || json.Unmarshal(text, &long) != nil { // a number with zeros in front, or a comma too many, is no JSON
			return
		}
		if string(short.Ranks) != string(long.Ranks) || !reflect.DeepEqual(short.Ended, long.Ended) || short.Generation != long.Generation || short.Round != long.Round {
			t.Errorf("%s: %+v, %+v", text, short, long)
		}
	})
}
