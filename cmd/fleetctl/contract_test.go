package main

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/barista-fleet/barista/pkg/fleet"
)

// TestContractIsDocumented: every field and word that programs see is in
// docs/cli-json.md.
func TestContractIsDocumented(t *testing.T) {
	b, err := os.ReadFile("../../docs/cli-json.md")
	if err != nil {
		t.Fatal(err)
	}
	words := map[string]bool{}
	text := regexp.MustCompile("(?s)```.*?```").ReplaceAllString(string(b), "") // examples document nothing
	for _, code := range regexp.MustCompile("`[^`]+`").FindAllString(text, -1) {
		for _, w := range regexp.MustCompile(`[a-z_0-9-]+`).FindAllString(code, -1) {
			words[w] = true
		}
	}
	need := func(word, where string) {
		if !words[word] {
			t.Errorf("%s of %s is not in docs/cli-json.md", word, where)
		}
	}
	for _, v := range []any{
		nameList{},
		nameJSON{},
		watchJSON{},
		problemJSON{},
		describedJSON{},
		resolvedJSON{},
		appliedJSON{},
		deletedJSON{},
		intentJSON{},
		eventJSON{},
		fleet.Event{},
		nodeJSON{},
		directiveJSON{},
		drainedName{},
		tenantJSON{},
		failure{},
		resultsJSON[int]{},
		fleet.Change{},
		fleet.Exit{},
		fleet.Capacity{},
	} {
		typ := reflect.TypeOf(v)
		for field := range typ.Fields() {
			if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
				need(name, typ.String())
			}
		}
	}
	for _, s := range fleet.Statuses {
		need(strings.ToLower(string(s)), "the statuses")
	}
	for _, s := range []fleet.Claim{fleet.ClaimNone, fleet.ClaimHolds, fleet.ClaimLost, fleet.ClaimUnknown} {
		need(string(s), "the claims")
	}
	for _, s := range []fleet.Outcome{fleet.OutcomeCreated, fleet.OutcomeAdopted, fleet.OutcomeConfigured, fleet.OutcomeUnchanged, fleet.OutcomeDeleted} {
		need(string(s), "the outcomes")
	}
	for _, c := range testApp().root().Commands {
		if c.Name != "help" && c.Name != "completion" {
			need(c.Name, "the verbs")
		}
	}
	if !strings.Contains(string(b), fmt.Sprintf("**Version %d.**", contract)) {
		t.Errorf("the document is not of version %d", contract)
	}
}
