// Package dialects proves, by running both, that a worker under muster sees what the launcher whose words started it would have
// given it.
package dialects
